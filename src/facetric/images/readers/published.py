"""The published sizes of the paper's datasets: classes and images of the splits in Section 5."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SplitCount:
    """The size of one split."""

    n_classes: int
    n_images: int

    def __str__(self) -> str:
        return f"{self.n_classes:,} classes with {self.n_images:,} images"


PUBLISHED: dict[str, dict[str, SplitCount]] = {
    "cub": {"train": SplitCount(100, 5_864), "test": SplitCount(100, 5_924)},
    "cars": {"train": SplitCount(98, 8_054), "test": SplitCount(98, 8_131)},
    "products": {"train": SplitCount(11_318, 59_551), "test": SplitCount(11_316, 60_502)},
}


def count_differences(name: str, counts: dict[str, SplitCount]) -> list[str]:
    """One sentence per split that differs from the published figures; empty when all agree or none are known."""
    none = SplitCount(0, 0)
    return [
        f"{split} has {counts.get(split, none)}, published: {published}"
        for split, published in PUBLISHED.get(name, {}).items()
        if counts.get(split, none) != published
    ]
