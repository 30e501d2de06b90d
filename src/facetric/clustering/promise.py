"""What a calibrated clustering promises of a new pile, by the pile's own clusters and distances.

Precision depends on the pile: with twice as many classes there are twice as many wrong pairs for every right one. What hardly
depends on the number and the size of the classes is how often two points of one class are joined, the recall r, and how often
two of different classes are, the rate f. With p, the share of the pairs of a pile that are of one class:

    odds of precision = p·r / ((1 − p)·f)

Nobody knows p. With e^H for the number of clusters (H: the entropy of their sizes), p·e^H is about the same for piles of many
shapes, so p follows from the clusters. And classes that lie nearer to each other than those of the calibration are joined more
often, which the distances between clusters show: f is read at the threshold that is as near to these as this one is to the
distances between the labeled classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist  # type: ignore[import-untyped]

_NEAR = 0.1  # the quantile of the distances between classes
_SAMPLE = 500  # points whose distances are looked at
_Z, _RARE = 1.645, 0.05  # for an interval that holds about nine times in ten
MIN_RATE = 1e-7  # of wrong pairs: a share of 0 has no logarithm


@dataclass(frozen=True)
class Estimate:
    """A value, and the interval that holds the real one about nine times in ten."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.low:.0f}–{100 * self.high:.0f}%"


@dataclass(frozen=True)
class Promise:
    """What to expect of the clusters of one pile."""

    precision: Estimate  # of two points in one cluster: how often are they of one class?
    recall: float  # of two points of one class: how often were they in one cluster, among the labeled classes?


@dataclass(frozen=True)
class PairRates:
    """What a threshold does to pairs of points, in any pile."""

    right: float  # r: of two points of one class, how often are they joined?
    wrong: float  # f: of two points of different classes, how often are they joined?
    same: float  # p·e^H: the share of the pairs that are of one class, times the number of clusters

    @classmethod
    def of(cls, classes: NDArray[np.int64], clusters: NDArray[np.int64]) -> PairRates:
        """The rates of one clustering."""
        pairs, same = len(classes) * (len(classes) - 1) / 2, _n_pairs(np.bincount(classes))
        right = _n_pairs(np.unique(classes * (int(clusters.max()) + 1) + clusters, return_counts=True)[1])
        wrong = (_n_pairs(np.bincount(clusters)) - right) / max(pairs - same, 1.0)
        return cls(right / max(same, 1.0), wrong, same / max(pairs, 1.0) * n_effective(clusters))

    def same_share(self, clusters: NDArray[np.int64]) -> float:
        """p: the share of the pairs of a pile that are of one class, by its clusters."""
        return min(max(self.same / n_effective(clusters), 1 / len(clusters) ** 2), 0.9)

    def expected_f1(self, same: float) -> float:
        """Of pairs, in a pile of which this share of the pairs are of one class."""
        right, wrong = same * self.right, (1 - same) * max(self.wrong, MIN_RATE)
        return 2 * right / (right + wrong + same)

    def promised_precision(self, clusters: NDArray[np.int64], spread: float = 0.0) -> Estimate:
        """Precision, its odds known up to a factor of e^±spread.

        Wrong pairs come class by class: in a pile of few classes there are some that are alike, or there are none.
        """
        same = self.same_share(clusters)
        odds = same * self.right / ((1 - same) * max(self.wrong, MIN_RATE))
        n_alike = self.wrong / same**2 / 2  # expected pairs of classes, of which there are 1/p² / 2
        factor = np.exp(_Z * np.sqrt(spread**2 + 1 / max(n_alike, 1.0)))
        high = _share(odds * factor) if np.exp(-n_alike) < _RARE else 1.0
        return Estimate(_share(odds), _share(odds / factor), high)


def _share(odds: float) -> float:
    return float(odds / (1 + odds))


def _n_pairs(sizes: NDArray[np.int64]) -> float:
    """Pairs of points within groups of these sizes."""
    return float((sizes * (sizes - 1)).sum() / 2)


def n_effective(clusters: NDArray[np.int64]) -> float:
    """e^H: the number of clusters where all are of one size, fewer where they are not."""
    sizes = np.bincount(clusters)
    shares = sizes[sizes > 0] / len(clusters)
    return float(np.exp(-(shares * np.log(shares)).sum()))


class Sample:
    """Some points of a pile, and their distances."""

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        self.rows = np.linspace(0, len(vectors) - 1, min(len(vectors), _SAMPLE)).astype(np.int64)
        self.distances = pdist(vectors[self.rows])

    def distance_between(self, groups: NDArray[np.int64]) -> float:
        """The distance within which a tenth of the pairs from different groups lie; 0 where there is one group."""
        apart = pdist(groups[self.rows].astype(np.float64)[:, None], "cityblock") > 0
        return float(np.quantile(self.distances[apart], _NEAR)) if apart.any() else 0.0
