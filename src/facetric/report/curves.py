"""The rows of metrics.jsonl as panels of curves: known quantities in a fixed order, whatever else was logged after them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_MOST_POINTS = 600  # of one curve: more than the pixels of a panel

# Panel, and the keys of a row that it shows; keys of nested tables are joined by a dot.
_PANELS = (
    ("Loss", r"loss"),
    ("Facility score F and oracle score F̃", r"facility_score|oracle_score"),
    ("Margin Δ", r"margin"),
    ("NMI of the batch clustering", r"nmi|batch_nmi"),
    ("Validation: retrieval", r"validation\.(recall|map|r_precision|precision).*"),
    ("Validation: clustering", r"validation\..*"),
    ("Margin weight γ", r"margin_weight"),
    ("Learning rates", r"(learning_rates?|lr|rates)\b.*|.*_lr"),
    ("Images per second", r"(timing\.)?images_per_second"),
    ("Fractions of a step's time", r"(timing\.)?.*_fraction"),
    ("Seconds", r"(timing\.)?.*_seconds"),
)
_NAMES = {
    "facility_score": "F",
    "oracle_score": "F̃",
    "margin": "Δ",
    "margin_weight": "γ",
    "nmi": "NMI",
    "images_per_second": "images/s",
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
    curves: tuple[Curve, ...]


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
    return Curve(score_name(key.rpartition(".")[-1]), tuple(kept), tuple(points[step] for step in kept))


def score_name(key: str) -> str:
    """The display name of a key.

    >>> score_name("recall_at_4"), score_name("nmi"), score_name("map_at_r"), score_name("head_lr")
    ('R@4', 'NMI', 'MAP@R', 'head lr')
    """
    if key in _NAMES:
        return _NAMES[key]
    if found := re.fullmatch(r"recall_at_(\d+)", key):
        return f"R@{found[1]}"
    if key in {"nmi", "ami", "ari", "map_at_r"}:
        return key.upper().replace("_AT_", "@")
    return key.replace("_", " ")
