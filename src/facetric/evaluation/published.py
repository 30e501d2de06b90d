"""The tables of the paper, restated (Oh Song, Jegelka, Rathod, Murphy: Deep Metric Learning via Facility Location, CVPR 2017).

Tables 1 to 3: NMI and Recall@K in percent, embeddings of 64 dimensions, Inception with batch normalization.
"""

from __future__ import annotations

from dataclasses import dataclass

CITATION = "Oh Song et al., Deep Metric Learning via Facility Location, CVPR 2017"


@dataclass(frozen=True)
class PublishedRow:
    """One line of a table, in percent as printed."""

    method: str
    nmi: float
    recall_at_k: dict[int, float]


def _rows(ks: tuple[int, ...], lines: dict[str, tuple[float, ...]]) -> tuple[PublishedRow, ...]:
    return tuple(PublishedRow(name, values[0], dict(zip(ks, values[1:], strict=True))) for name, values in lines.items())


PUBLISHED: dict[str, tuple[PublishedRow, ...]] = {
    "cub": _rows(
        (1, 2, 4, 8),
        {
            "Triplet semihard": (55.38, 42.59, 55.03, 66.44, 77.23),
            "Lifted struct": (56.50, 43.57, 56.55, 68.59, 79.63),
            "Npairs": (57.24, 45.37, 58.41, 69.51, 79.49),
            "Clustering": (59.23, 48.18, 61.44, 71.83, 81.92),
        },
    ),
    "cars": _rows(
        (1, 2, 4, 8),
        {
            "Triplet semihard": (53.35, 51.54, 63.78, 73.52, 82.41),
            "Lifted struct": (56.88, 52.98, 65.70, 76.01, 84.27),
            "Npairs": (57.79, 53.90, 66.76, 77.75, 86.35),
            "Clustering": (59.04, 58.11, 70.64, 80.27, 87.81),
        },
    ),
    "products": _rows(
        (1, 10, 100),
        {
            "Triplet semihard": (89.46, 66.67, 82.39, 91.85),
            "Lifted struct": (88.65, 62.46, 80.81, 91.93),
            "Npairs": (89.37, 66.41, 83.24, 93.00),
            "Clustering": (89.48, 67.02, 83.65, 93.23),
        },
    ),
}
