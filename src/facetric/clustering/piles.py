"""Labeled classes resampled into piles of several shapes: nobody knows how large the classes of an unsorted pile are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SMALL, TAIL = 5, (20, 2)  # photos per class of a small pile; of the largest and the smallest class of a long tail
MAX_PILE = 5000  # points


def resampled_piles(classes: NDArray[np.int64], seed: int, *, max_points: int = MAX_PILE) -> dict[str, NDArray[np.int64]]:
    """Rows of each pile: whole classes, five per class, a long tail from 20 to 2, and a long tail among images that are alone.

    Piles of more than `max_points` are thinned by leaving out classes.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(int(classes.max()) + 1)
    rows = rows_by_class(classes, order, rng)
    half = len(rows) // 2
    piles = {
        "whole classes": rows[:half],
        "five per class": [own[:_SMALL] for own in rows],
        "long tail": _tail(rows),
        "long tail and lonely": [*_tail(rows[:half]), *(own[:1] for own in rows[half:])],
    }
    return {name: np.concatenate(_thinned(parts, max_points)) for name, parts in piles.items()}


def rows_by_class(classes: NDArray[np.int64], order: NDArray[np.int64], rng: np.random.Generator) -> list[NDArray[np.int64]]:
    return [rng.permutation(np.flatnonzero(classes == c)) for c in order]


def _tail(rows: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    sizes = np.round(np.geomspace(*TAIL, len(rows))).astype(int)
    return [own[:size] for own, size in zip(rows, sizes, strict=True)]


def _thinned(parts: list[NDArray[np.int64]], max_points: int) -> list[NDArray[np.int64]]:
    """Classes all along the list, so that what is left has the same shape."""
    n_points = sum(len(part) for part in parts)
    n_kept = min(max(len(parts) * max_points // n_points, 2), len(parts))
    return [parts[i] for i in np.linspace(0, len(parts) - 1, n_kept).astype(int)]
