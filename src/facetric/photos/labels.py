"""Which of the labels in a collection a photo has, if any, and how often such an answer is right.

Vectors are whitened by how photos of one label differ from their mean, which the labeled photos of the collection teach. A photo
has the label whose mean is nearest by angle. How sure that is depends on the angles to this mean and to the next best ones, and
on whether the photos of this label are usually as near to it:

    z = (cosine to the mean − average cosine of the label's photos to the mean of its others) / their spread

where a photo that is compared with its others is left out of the covariance too.

How often such an answer is right is measured on the labeled photos themselves: a quarter of the labels is left out in turn, and
of the others a quarter of the photos. Answers for photos of labels that were left out are always wrong, and show what those look
like. A logistic regression on the evidence gives the precision for a stated fraction of such photos.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular  # type: ignore[import-untyped]

from facetric.metrics import unit_rows
from facetric.photos.ingest import Store

UNKNOWN_FRACTION = 0.5  # of the photos that are classified, how many have none of the labels here, unless said otherwise
ENOUGH = 0.5  # an answer that is right less often than this is none
MIN_SAMPLE = 20  # known photos to measure a precision by
_PER_LABEL, _N_SAMPLE = 50, 10_000  # photos that teach, of one label and about so many in all
_PARTS = 4
_SHRINKAGE = 1.0  # of the covariance towards its mean variance
_TYPICAL = 20.0  # photos that the average label counts as, in what is said of one label
_KEPT = 8  # precisions, each for a fraction of unknown photos
_Precision = Callable[[NDArray[np.float64]], NDArray[np.float64] | None]  # of answers with this evidence


@dataclass(frozen=True)
class Vote:
    """The label of a photo, among those of the collection."""

    label: str
    expected_precision: float | None  # None where too few photos have labels to measure it

    @property
    def is_unknown(self) -> bool:
        """Whether the label is more likely wrong than right."""
        return self.expected_precision is not None and self.expected_precision < ENOUGH


class Centers:
    """The whitened means of labels, learned from labeled vectors; `codes` number the labels of the rows from 0."""

    def __init__(self, vectors: NDArray[np.float32], codes: NDArray[np.int64]) -> None:
        n, counts = len(codes), np.bincount(codes)
        sums = np.zeros((len(counts), vectors.shape[1]))
        np.add.at(sums, codes, vectors)
        means = sums / counts[:, None]
        inner = vectors - means[codes]
        freedom = max(n - len(counts), 1)
        covariance = inner.T @ inner / freedom
        scale = float(np.trace(covariance)) / len(covariance)
        covariance.flat[:: len(covariance) + 1] += _SHRINKAGE * scale + 1e-12
        self._root = cholesky(covariance, lower=True)
        self._middle = means.mean(axis=0)
        own = self._whitened(means)
        self._means = unit_rows(own)
        several = counts[codes] > 1
        rows, size = codes[several], counts[codes[several], None]
        x, u = self._whitened(vectors[several]), self._whitened(inner[several] + self._middle)
        others = own[rows] * size - x  # the sum of the label's other photos
        # products as if the photo had not been among those that the covariance is of (Sherman and Morrison)
        share = size[:, 0] / (size[:, 0] - 1) / freedom
        share = share / (1 - share * (u * u).sum(axis=1))
        ux, uo = (x * u).sum(axis=1), (others * u).sum(axis=1)
        norms = ((x * x).sum(axis=1) + share * ux**2) * ((others * others).sum(axis=1) + share * uo**2)
        cosines = ((x * others).sum(axis=1) + share * ux * uo) / np.sqrt(np.maximum(norms, 1e-30))
        typical, spread = (float(cosines.mean()), float(cosines.var())) if len(cosines) else (1.0, 1.0)
        weights = np.bincount(rows, minlength=len(counts)) + _TYPICAL
        self._cosine = (np.bincount(rows, cosines, len(counts)) + _TYPICAL * typical) / weights
        squares = np.bincount(rows, (cosines - self._cosine[rows]) ** 2, len(counts))
        self._spread = np.sqrt((squares + _TYPICAL * spread) / weights) + 1e-6

    def _whitened(self, vectors: NDArray[np.floating]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = solve_triangular(self._root, (vectors - self._middle).T, lower=True).T
        return found

    def nearest(self, vectors: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The label of each vector, and the evidence (n, 4): its cosine, the second, the mean of the next four, and z."""
        cosines = unit_rows(self._whitened(vectors)) @ self._means.T
        best = cosines.argmax(axis=1)
        rows = np.arange(len(vectors))
        z = (cosines[rows, best] - self._cosine[best]) / self._spread[best]
        top = -np.partition(-cosines, range(min(6, cosines.shape[1])), axis=1)[:, :6] if cosines.shape[1] > 1 else cosines
        top = np.pad(top, ((0, 0), (0, 6 - top.shape[1])), mode="edge")
        return best, np.column_stack([top[:, 0], top[:, 1], top[:, 2:].mean(axis=1), z])


class Votes:
    """Labels for vectors, by the labeled photos of one store: learned when it is needed, and again after a change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._learned = lru_cache(1)(self._learn)
        self._measured = lru_cache(_KEPT)(lambda version, fraction: _fitted(self._learned(version)[2], fraction))

    def of(self, vectors: NDArray[np.float32], *, unknown_fraction: float = UNKNOWN_FRACTION) -> list[Vote | None]:
        """The label of each vector (n, dim); None where no photo has a label."""
        version = self._store.version()
        names, centers, _ = self._learned(version)
        if centers is None:
            return [None] * len(vectors)
        best, evidence = centers.nearest(vectors)
        precision = self._measured(version, unknown_fraction)(evidence)
        expected = [None] * len(vectors) if precision is None else precision.tolist()
        return [Vote(names[code], value) for code, value in zip(best.tolist(), expected, strict=True)]

    def _learn(self, _: int) -> tuple[list[str], Centers | None, NDArray[np.float64]]:
        with self._store.moment():
            contents: dict[str, dict[bytes, None]] = {}
            for entry in self._store.entries():
                if entry.label:
                    contents.setdefault(entry.label, {})[entry.content] = None
            if not contents:
                return [], None, np.empty((0, 6))
            most = max(min(_PER_LABEL, _N_SAMPLE // len(contents)), 1)
            chosen = {label: _spread_out(list(own), most) for label, own in contents.items()}
            vectors = self._store.vectors([content for own in chosen.values() for content in own])
        codes = np.repeat(np.arange(len(chosen)), [len(own) for own in chosen.values()])
        return list(chosen), Centers(vectors, codes), _cases(vectors, codes)


def _spread_out(contents: list[bytes], most: int) -> list[bytes]:
    return [contents[i] for i in np.unique(np.linspace(0, len(contents) - 1, most).astype(int))]


def _cases(vectors: NDArray[np.float32], codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """(n, 6): the evidence of an answer, whether it was right, whether the photo's label was left out. None of fewer than four
    labels of two photos or more.
    """
    counts = np.bincount(codes)
    rows = np.flatnonzero(counts[codes] > 1)
    labels = np.unique(codes[rows])
    if len(labels) < _PARTS:
        return np.empty((0, 6))
    number = np.arange(len(codes)) - np.searchsorted(codes, codes)  # of the photo within its label; codes are in order
    parts = np.empty(int(codes.max()) + 1, dtype=np.int64)
    parts[labels] = np.arange(len(labels)) % _PARTS
    found = []
    for part in range(_PARTS):
        left_out = parts[codes[rows]] == part
        asked = left_out | (number[rows] % _PARTS == 1)  # the second photo, the sixth, …: one stays, even of two
        known = rows[~asked]
        distinct, own = np.unique(codes[known], return_inverse=True)
        best, evidence = Centers(vectors[known], own).nearest(vectors[rows[asked]])
        right = distinct[best] == codes[rows[asked]]
        found.append(np.column_stack([evidence, right, left_out[asked]]))
    return np.concatenate(found)


def _fitted(cases: NDArray[np.float64], unknown_fraction: float) -> _Precision:
    """The precision of answers when this fraction of the photos is unknown."""
    is_unknown = cases[:, -1] > 0
    if np.count_nonzero(~is_unknown) < MIN_SAMPLE:
        return lambda evidence: None
    weights = np.where(is_unknown, unknown_fraction / max(is_unknown.sum(), 1), (1 - unknown_fraction) / (~is_unknown).sum())
    evidence, right, weights = cases[weights > 0, :-2], cases[weights > 0, -2], weights[weights > 0]
    if right.min() == right.max():
        return lambda evidence: np.full(len(evidence), float(right[0]))
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
    from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]
    from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]

    model = make_pipeline(StandardScaler(), LogisticRegression())
    model.fit(evidence, right, logisticregression__sample_weight=weights / weights.mean())
    return lambda evidence: model.predict_proba(evidence)[:, 1]
