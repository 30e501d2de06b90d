"""What the page shows of scores and curves: headline cards, the run's row above the paper's, panels over the steps."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from facetric.evaluation import CITATION, PUBLISHED, EvaluationReport, percent

_OF_100 = {  # scores that count images
    "R@1": "For {} of 100 images, the most similar other image is of the same class.",
    "purity": "{} of 100 images are of the most frequent class in their cluster.",
}
_MEANINGS = {
    "NMI": "How much the clusters tell about the classes: 100 when they are the same, near 0 when they have nothing in common.",
    "medoid NMI": "The same for k-means that starts from medoids, not at random.",
    "MAP@R": "Do the images of a class come first among an image's neighbors? 100: all of them do. Early errors cost the most.",
    "R-precision": "Take as many neighbors of an image as its class has other images: how many of 100 are of its class.",
    "V-measure": "Does a cluster hold one class, and does a class lie in one cluster? 100 if both are always so.",
    "AMI": "NMI, corrected for chance: 0 for random clusters, 100 when clusters and classes are the same.",
    "ARI": "Do pairs of images belong together? Corrected for chance: 0 for random clusters, 100 when all pairs agree.",
    "pairwise F1": "Pairs of images: are those in one cluster of one class, and those of one class in one cluster? 100: all are.",
    "BCubed F1": "For an average image: how much of its cluster is of its class, and how much of its class is in its cluster.",
}

_MOST_POINTS = 600  # of one curve: more than the pixels of a panel

# Panel, and the keys of a row that it shows; keys of nested tables are joined by a dot.
_PANELS = (
    ("Loss", r"loss"),
    ("Facility score F and oracle score F̃", r"facility_score|oracle_score"),
    ("Margin Δ", r"margin"),
    ("NMI of the batch clustering", r"batch_nmi"),
    ("Validation: retrieval", r"validation\.(recall|map|r_precision|precision).*"),
    ("Validation: clustering", r"validation\..*"),
    ("Margin weight γ", r"margin_weight"),
    ("Learning rates", r"(learning_rates?|lr|rates)\b.*|.*_lr"),
    ("Images per second", r"(timing\.)?images_per_second"),
    ("Fractions of a step's time", r"(timing\.)?.*_fraction"),
    ("Seconds", r"(timing\.)?.*_seconds"),
)
_NAMES = {  # besides R@K
    "facility_score": "F",
    "oracle_score": "F̃",
    "margin": "Δ",
    "margin_weight": "γ",
    "batch_nmi": "batch NMI",
    "images_per_second": "images/s",
    "nmi": "NMI",
    "map_at_r": "MAP@R",
}


def meaning(score: str, value: float | None = None) -> str:
    """What a score says, in one line for people who do not know its name.

    >>> meaning("purity", 0.613), meaning("R@4")
    ('61 of 100 images are of the most frequent class in their cluster.', 'Images with one of their class among the 4 nearest.')
    """
    if score in _OF_100 and value is not None:
        return _OF_100[score].format(round(100 * value))
    if score.startswith("R@"):
        return f"Images with one of their class among the {score.removeprefix('R@')} nearest."
    return _MEANINGS.get(score, "")


def score_section(evaluation: EvaluationReport, *, dataset: str, run_name: str, chosen: str = "") -> dict[str, Any]:
    """The scores of a run, what there was before training, and the paper's rows when the dataset is one of the paper's.

    All values are text, in percent, as the page shows them; keys as its scripts read them. `chosen` says which recipe was chosen,
    and why.
    """
    own = evaluation.comparable_scores()
    cards = {name: value for name, value in own.items() if name == "R@1" or not name.startswith("R@")} | evaluation.other_scores()
    shown = {run_name: {column: percent(value) for column, value in own.items()}}
    for name, start in evaluation.baselines.items():
        scores = {column: percent(value) for column, value in start.comparable_scores().items()}
        shown[f"before: {name}, d = {start.dim:,}"] = scores
    published = PUBLISHED.get(dataset, ())
    for row in published:
        shown[row.name] = {column: str(score) for column, score in row.scores.items()}
    rows = [
        {"name": name, "values": [scores.get(column, "–") for column in own], "ours": name == run_name}
        for name, scores in shown.items()
    ]
    notes = ["In percent.", *evaluation.notes()]
    if published:
        notes.append(f"Rows marked (paper): as published in {CITATION}.")
    if published or evaluation.baselines:
        notes.append("The best of each column is underlined.")
    if chosen:
        notes.append(f"Recipe {chosen}.")
    return {
        "cards": [{"name": name, "value": percent(value), "meaning": meaning(name, value)} for name, value in cards.items()],
        "columns": list(own),
        "meanings": [meaning(column) for column in own],
        "rows": rows if own else [],
        "notes": " ".join(notes),
    }


@dataclass(frozen=True)
class Curve:
    """One quantity over steps; None where a row had a non-finite value."""

    name: str
    steps: tuple[float, ...]
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Panel:
    """Curves that share their axes."""

    title: str
    series: tuple[Curve, ...]


def panels(rows: Iterable[dict[str, Any]]) -> tuple[Panel, ...]:
    """Every number of the rows over its step; rows without a step are left out, keys that no panel claims get their own."""
    points: dict[str, dict[float, float | None]] = {}
    for row in rows:
        step = row.get("step")
        if isinstance(step, bool) or not isinstance(step, int | float) or not math.isfinite(step):
            continue
        for key, value in _flat(row):
            if key != "step":
                points.setdefault(key, {})[step] = value if math.isfinite(value) else None
    unclaimed = {key: found for key, found in points.items() if any(value is not None for value in found.values())}
    made = []
    for title, pattern in _PANELS:
        keys = [key for key in unclaimed if re.fullmatch(pattern, key)]
        if keys:
            made.append(Panel(title, tuple(_curve(key, unclaimed.pop(key)) for key in keys)))
    made += [Panel(key, (_curve(key, found),)) for key, found in unclaimed.items()]
    return tuple(made)


def _flat(row: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, float]]:
    for key, value in row.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{key}", float(value)


def _curve(key: str, points: dict[float, float | None]) -> Curve:
    steps = sorted(points)
    stride = max(1, math.ceil(len(steps) / _MOST_POINTS))
    kept = steps[::stride]
    if kept[-1] != steps[-1]:
        kept.append(steps[-1])
    last = key.rpartition(".")[-1]
    name = _NAMES.get(last) or re.sub(r"^recall_at_(\d+)$", r"R@\1", last).replace("_", " ")
    return Curve(name, tuple(kept), tuple(points[step] for step in kept))
