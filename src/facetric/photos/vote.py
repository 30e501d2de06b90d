"""A label from the neighbors, and how often such a vote is right: measured on labeled photos of the index itself.

Every sampled photo is classified twice: by the others, and by the others of other labels, as if its own were not in the index;
copies of it do not vote. The second vote is always wrong, and shows what votes on foreign photos look like: less similar
neighbors that agree less. A logistic regression on both, the similarity of the nearest and the share of the majority, gives the
precision of a vote for a stated share of foreign photos.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facetric.photos.contract import Entry, Hit, Store

FOREIGN = 0.5  # of the photos that are classified, how many are of labels that the index does not have, unless said otherwise
ENOUGH = 0.5  # a vote that is right less often than this is no answer
N_SAMPLE = 200  # photos that are classified to measure it
MIN_SAMPLE = 20
_FELLOWS = 1000  # neighbors of a photo's own label that are passed over in search of others
_COPIES = 8  # room for copies

_Precision = Callable[[float, float], float | None]  # of a vote with this similarity and fraction


@dataclass(frozen=True)
class Vote:
    """The label of most neighbors; of equal ones, that of the most similar."""

    label: str
    fraction: float  # of the neighbors that have a label
    expected_precision: float | None  # None where too few photos have labels to measure it

    @property
    def is_unknown(self) -> bool:
        """Whether the label is more likely wrong than right."""
        return self.expected_precision is not None and self.expected_precision < ENOUGH


class Votes:
    """Votes among the neighbors in one store. Their precision is measured when it is needed, and again after a change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._measured_for: tuple[int, int, float, float] | None = None
        self._precision: _Precision = lambda similarity, fraction: None

    def of(self, hits: Sequence[Sequence[Hit]], *, top: int, limit: float, foreign: float = FOREIGN) -> list[Vote | None]:
        """The vote among the hits of each query; None where no hit has a label. `foreign`: the share of foreign photos."""
        winners = [_winner(some) for some in hits]
        if any(winners) and self._measured_for != (now := (self._store.version(), top, limit, foreign)):
            self._precision = _fitted(_cases(self._store, top=top, limit=limit), foreign)
            self._measured_for = now
        return [None if one is None else Vote(one.label, one.fraction, self._precision(*one.evidence)) for one in winners]


@dataclass(frozen=True)
class _Winner:
    label: str
    evidence: tuple[float, float]  # the similarity of the nearest labeled photo; how many of the labeled ones have the label

    @property
    def fraction(self) -> float:
        return self.evidence[1]


def _winner(hits: Sequence[Hit]) -> _Winner | None:
    labeled = [hit for hit in hits if hit.entry.label]
    if not labeled:
        return None
    counts = Counter(hit.entry.label for hit in labeled)  # in order of similarity: max takes the first of equal ones
    best = max(counts, key=lambda label: counts[label])
    return _Winner(best, (labeled[0].similarity, counts[best] / len(labeled)))


def _cases(store: Store, *, top: int, limit: float) -> NDArray[np.float64]:
    """(n, 4): the two of the evidence, whether the vote was right, whether it was on a foreign photo.

    Of labeled photos that have a fellow of another content; of none where there is but one label.
    """
    first: dict[tuple[str, bytes], Entry] = {}
    for entry in store.entries():
        if entry.label:
            first.setdefault((entry.label, entry.content), entry)
    counts = Counter(label for label, _ in first)
    entries = [entry for (label, _), entry in first.items() if counts[label] > 1]
    if not entries or len(counts) < 2:
        return np.empty((0, 4))
    entries = [entries[i] for i in np.unique(np.linspace(0, len(entries) - 1, N_SAMPLE).astype(int))]
    depth = top + _COPIES + min(max(counts.values()), _FELLOWS)
    found = store.search(store.vectors([entry.content for entry in entries]), top=depth)
    rows = []
    for entry, hits in zip(entries, found, strict=True):
        others = [hit for hit in hits if hit.entry.content != entry.content and hit.similarity >= limit]
        strangers = [hit for hit in others if hit.entry.label != entry.label]
        for is_foreign, voters in ((False, others), (True, strangers)):
            winner = _winner(voters[:top])
            if winner is not None:
                rows.append((*winner.evidence, float(winner.label == entry.label), float(is_foreign)))
    return np.array(rows, dtype=np.float64).reshape(-1, 4)


def _fitted(cases: NDArray[np.float64], foreign: float) -> _Precision:
    """The precision of votes when this share of the photos is foreign."""
    weights = np.where(cases[:, 3] > 0, foreign, 1 - foreign)
    evidence, right, weights = cases[weights > 0, :2], cases[weights > 0, 2], weights[weights > 0]
    if np.count_nonzero(cases[:, 3] == 0) < MIN_SAMPLE:
        return lambda similarity, fraction: None
    if right.min() == right.max():
        return lambda similarity, fraction: float(right[0])
    from scipy.special import expit  # type: ignore[import-untyped]
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

    center, scale = evidence.mean(axis=0), np.maximum(evidence.std(axis=0), 1e-9)
    model = LogisticRegression().fit((evidence - center) / scale, right, sample_weight=weights / weights.mean())
    slopes = model.coef_[0] / scale
    return lambda *one: float(expit((np.array(one) - center) @ slopes + model.intercept_[0]))
