"""How far clusters agree with classes, and what precision to expect of a calibrated clustering of an unlabeled set.

Precision depends on the set: with twice as many classes there are twice as many wrong pairs for every right one. What hardly
depends on the number and the size of the classes is how often two points of one class are joined, the recall r, and how often
two of different classes are, the rate f. With p, the fraction of the pairs of a set that are of one class:

    odds of precision = p·r / ((1 − p)·f)

p is unknown. With e^H for the number of clusters (H: the entropy of their sizes), p·e^H is about the same for sets of many
shapes, so p follows from the clusters. And classes that lie nearer to each other than those of the calibration are joined more
often, which the distances between clusters show: f is read at the threshold that is as near to these as this one is to the
distances between the labeled classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist  # type: ignore[import-untyped]

from facetric.metrics import precision_recall

_NEAR = 0.1  # the quantile of the distances between classes
_SAMPLE = 500  # points whose distances are looked at
_Z, _RARE = 1.645, 0.05  # for an interval that holds about nine times in ten
MIN_RATE = 1e-7  # of wrong pairs: a rate of 0 has no logarithm


@dataclass(frozen=True)
class Agreement:
    """How far clusters agree with classes. Pairs count large classes by their square; BCubed averages over points."""

    pairwise_precision: float  # of two photos in one cluster, how often are they of one class?
    pairwise_recall: float  # of two photos of one class, how often are they in one cluster?
    bcubed_precision: float
    bcubed_recall: float

    @property
    def bcubed_f1(self) -> float:
        return _f1(self.bcubed_precision, self.bcubed_recall)

    @property
    def pairwise_f1(self) -> float:
        return _f1(self.pairwise_precision, self.pairwise_recall)

    @property
    def score(self) -> float:
        """What settings are chosen by. BCubed alone would accept one giant cluster beside many points that are alone."""
        return (self.bcubed_f1 + self.pairwise_f1) / 2

    @classmethod
    def of(cls, classes: ArrayLike, clusters: ArrayLike) -> Agreement:
        """Scores of one clustering.

        >>> Agreement.of([0, 0, 0, 1], [7, 7, 8, 8])  # doctest: +ELLIPSIS
        Agreement(pairwise_precision=0.5, pairwise_recall=0.333..., bcubed_precision=0.75, bcubed_recall=0.666...)
        """
        pairs, points = precision_recall(classes, clusters)
        return cls(*pairs, *points)

    @classmethod
    def mean(cls, agreements: Iterable[Agreement]) -> Agreement:
        """The mean of every score."""
        scores = list(agreements)
        return cls(*(float(np.mean([getattr(score, field.name) for score in scores])) for field in fields(cls)))


@dataclass(frozen=True)
class Estimate:
    """A value, and the interval that holds the real one about nine times in ten."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.low:.0f}–{100 * self.high:.0f}%"


@dataclass(frozen=True)
class ExpectedPrecision:
    """What to expect of the clusters of one set."""

    precision: Estimate  # of two points in one cluster: how often are they of one class?
    recall: float  # of two points of one class: how often were they in one cluster, among the labeled classes?

    def __str__(self) -> str:
        return f"precision {self.precision}, recall about {self.recall:.0%}"


@dataclass(frozen=True)
class PairRates:
    """What a threshold does to pairs of points, in any set."""

    right: float  # r: of two points of one class, how often are they joined?
    wrong: float  # f: of two points of different classes, how often are they joined?
    same: float  # p·e^H: the fraction of the pairs that are of one class, times the number of clusters

    @classmethod
    def of(cls, classes: NDArray[np.int64], clusters: NDArray[np.int64]) -> PairRates:
        """The rates of one clustering."""
        pairs, same = len(classes) * (len(classes) - 1) / 2, _n_pairs(np.bincount(classes))
        right = _n_pairs(np.unique(classes * (int(clusters.max()) + 1) + clusters, return_counts=True)[1])
        wrong = (_n_pairs(np.bincount(clusters)) - right) / max(pairs - same, 1.0)
        return cls(right / max(same, 1.0), wrong, same / max(pairs, 1.0) * n_effective(clusters))

    def same_fraction(self, clusters: NDArray[np.int64]) -> float:
        """p: the fraction of the pairs of a set that are of one class, by its clusters."""
        return min(max(self.same / n_effective(clusters), 1 / len(clusters) ** 2), 0.9)

    def expected_precision(self, clusters: NDArray[np.int64], spread: float = 0.0) -> Estimate:
        """Precision, its odds known up to a factor of e^±spread.

        Wrong pairs come class by class: in a set of few classes there are some that are alike, or there are none.
        """
        same = self.same_fraction(clusters)
        odds = same * self.right / ((1 - same) * max(self.wrong, MIN_RATE))
        n_alike = self.wrong / same**2 / 2  # expected pairs of classes, of which there are 1/p² / 2
        factor = np.exp(_Z * np.sqrt(spread**2 + 1 / max(n_alike, 1.0)))
        high = _fraction(odds * factor) if np.exp(-n_alike) < _RARE else 1.0
        return Estimate(_fraction(odds), _fraction(odds / factor), high)


def _f1(precision: float, recall: float) -> float:
    total = precision + recall
    return 2 * precision * recall / total if total else 0.0


def _fraction(odds: float) -> float:
    return float(odds / (1 + odds))


def _n_pairs(sizes: NDArray[np.int64]) -> float:
    """Pairs of points within groups of these sizes."""
    return float((sizes * (sizes - 1)).sum() / 2)


def n_effective(clusters: NDArray[np.int64]) -> float:
    """e^H: the number of clusters where all are of one size, fewer where they are not."""
    sizes = np.bincount(clusters)
    fractions = sizes[sizes > 0] / len(clusters)
    return float(np.exp(-(fractions * np.log(fractions)).sum()))


class Sample:
    """Some points of a set, and their distances."""

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        self.rows = np.linspace(0, len(vectors) - 1, min(len(vectors), _SAMPLE)).astype(np.int64)
        self.distances = pdist(vectors[self.rows])

    def distance_between(self, groups: NDArray[np.int64]) -> float:
        """The distance within which a tenth of the pairs from different groups lie; 0 where there is one group."""
        apart = pdist(groups[self.rows].astype(np.float64)[:, None], "cityblock") > 0
        return float(np.quantile(self.distances[apart], _NEAR)) if apart.any() else 0.0
