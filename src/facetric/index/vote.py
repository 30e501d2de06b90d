"""A label from the neighbors, and how often such a vote is right: measured on labeled photos of the index itself.

Every sampled photo is classified by the others; copies of it do not vote. The precision of a vote is how many photos with
about the same majority got their own label. It holds for photos whose label is in the index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from facetric.index.contract import Entry, Hit, Store

N_SAMPLE = 200  # photos that are classified to measure it
N_SIMILAR = 50  # of them, those with the nearest majority
MIN_SAMPLE = 20


@dataclass(frozen=True)
class Vote:
    """The label of most neighbors; of equal ones, that of the most similar."""

    label: str
    fraction: float  # of the neighbors that have a label
    expected_precision: float | None  # None where too few photos have labels to measure it


class Votes:
    """Votes among the neighbors in one store. Their precision is measured when it is needed, and again after a change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._measured_for: tuple[int, int, float] | None = None
        self._sample = np.empty((0, 2))

    def of(self, hits: Sequence[Sequence[Hit]], *, top: int, limit: float) -> list[Vote | None]:
        """The vote among the hits of each query; None where no hit has a label."""
        winners = [_winner(some) for some in hits]
        if any(winners) and self._measured_for != (now := (self._store.version(), top, limit)):
            self._sample, self._measured_for = _leave_one_out(self._store, top=top, limit=limit), now
        return [None if winner is None else Vote(*winner, _precision(self._sample, winner[1])) for winner in winners]


def _winner(hits: Sequence[Hit]) -> tuple[str, float] | None:
    labels = [hit.entry.label for hit in hits if hit.entry.label]
    if not labels:
        return None
    counts = Counter(labels)  # in order of similarity: max takes the first of equal ones
    best = max(counts, key=lambda label: counts[label])
    return best, counts[best] / len(labels)


def _leave_one_out(store: Store, *, top: int, limit: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """(n, 2): the winner's fraction, and whether it was right, for labeled photos that have a fellow of another content."""
    first: dict[tuple[str, bytes], Entry] = {}
    for entry in store.entries():
        if entry.label:
            first.setdefault((entry.label, entry.content), entry)
    counts = Counter(label for label, _ in first)
    entries = [entry for (label, _), entry in first.items() if counts[label] > 1]
    if not entries:
        return np.empty((0, 2))
    entries = [entries[i] for i in np.unique(np.linspace(0, len(entries) - 1, N_SAMPLE).astype(int))]
    found = store.search(store.vectors([entry.content for entry in entries]), top=top + 8)  # 8: room for copies
    rows = []
    for entry, hits in zip(entries, found, strict=True):
        others = [hit for hit in hits if hit.entry.content != entry.content and hit.similarity >= limit][:top]
        winner = _winner(others)
        if winner is not None:
            rows.append((winner[1], float(winner[0] == entry.label)))
    return np.array(rows, dtype=np.float64).reshape(-1, 2)


def _precision(sample: np.ndarray[tuple[int, int], np.dtype[np.float64]], fraction: float) -> float | None:
    if len(sample) < MIN_SAMPLE:
        return None
    distances = np.abs(sample[:, 0] - fraction)
    reach = np.sort(distances)[min(N_SIMILAR, len(sample)) - 1]
    return float(sample[distances <= reach, 1].mean())
