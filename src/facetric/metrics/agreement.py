"""Clustering scores (the paper's NMI and its relatives), each defined once for the loss's margin and for the reports.

All but one depend on the contingency table through three sums only,

    cells = Σ φ(n_rc),   rows = Σ φ(a_r),   columns = Σ φ(b_c),

over its counts n_rc, its row sums a_r and its column sums b_c, where φ(x) = x·log x for the scores built on entropies and
φ(x) = x·(x − 1)/2 for those that count pairs of points. :func:`agreement` turns the sums into the score. A solver that
moves one point from cluster to cluster therefore updates a handful of terms instead of a table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facetric.metrics import kernels
from facetric.metrics.contingency import Contingency, contingency, precision_recall


def score_contingency(score: int, table: Contingency) -> float:
    """One score of one table, unclipped."""
    n_points = table.n_points
    if score == kernels.ZERO_ONE:
        return float(kernels.matched_points(table.dense())) / n_points
    expected = kernels.expected_mutual_information(table.rows, table.columns, n_points).sum() if score == kernels.AMI else 0.0
    cells, rows, columns = (_phi_sum(score, counts) for counts in (table.cells, table.rows, table.columns))
    return float(kernels.agreement(score, n_points, kernels.phi(score, float(n_points)), cells, rows, columns, float(expected)))


def _phi_sum(score: int, counts: NDArray[np.int64]) -> float:
    x = counts.astype(np.float64)
    return float(np.sum(x * np.log(x) if score <= kernels.AMI else x * (x - 1.0) / 2.0))


def nmi(labels_true: ArrayLike, labels_pred: ArrayLike | None = None) -> float:
    """Normalized mutual information MI / √(H₁·H₂), the geometric mean, as the paper writes it.

    Takes two labelings, or one contingency table of counts. If either partition has a single cluster the score is 1 when
    both have, 0 otherwise. (scikit-learn's default is the arithmetic mean: that is :func:`vmeasure` here.)

    >>> nmi([0, 0, 1, 1], [7, 7, 3, 3])
    1.0
    >>> round(nmi([[3, 1], [0, 4]]), 4)
    0.5617
    """
    return score_contingency(kernels.NMI, contingency(labels_true, labels_pred))


def vmeasure(labels_true: ArrayLike, labels_pred: ArrayLike | None = None) -> float:
    """V-measure, 2·MI / (H₁ + H₂): the harmonic mean of homogeneity and completeness, NMI with the arithmetic mean.

    >>> round(vmeasure([[3, 1], [0, 4]]), 4)
    0.5616
    """
    return score_contingency(kernels.VMEASURE, contingency(labels_true, labels_pred))


def ami(labels_true: ArrayLike, labels_pred: ArrayLike | None = None) -> float:
    """Mutual information adjusted for chance, normalized by the arithmetic mean of the entropies (scikit-learn's default).

    >>> round(ami([[3, 1], [0, 4]]), 4)
    0.5001
    """
    return score_contingency(kernels.AMI, contingency(labels_true, labels_pred))


def ari(labels_true: ArrayLike, labels_pred: ArrayLike | None = None) -> float:
    """Rand index adjusted for chance: 1 for equal partitions, about 0 for random ones, negative below chance.

    >>> round(ari([[3, 1], [0, 4]]), 4)
    0.4948
    """
    return score_contingency(kernels.ARI, contingency(labels_true, labels_pred))


def pairwise_f1(labels_true: ArrayLike, labels_pred: ArrayLike | None = None) -> float:
    """F1 over pairs of points: a pair is positive when both points share a label.

    >>> round(pairwise_f1([[3, 1], [0, 4]]), 4)
    0.72
    """
    return score_contingency(kernels.F1, contingency(labels_true, labels_pred))


def matched_accuracy(labels_true: ArrayLike, labels_pred: ArrayLike | None = None) -> float:
    """Fraction of points that keep their label under the best one-to-one matching of clusters to classes.

    >>> matched_accuracy([[3, 1], [0, 4]])
    0.875
    """
    return score_contingency(kernels.ZERO_ONE, contingency(labels_true, labels_pred))


def purity(labels_true: ArrayLike | Contingency, labels_pred: ArrayLike | None = None) -> float:
    """Fraction of points in the majority class of their cluster (classes are rows, clusters are columns). Not symmetric.

    >>> purity([[3, 1], [0, 4]])
    0.875
    >>> purity([0, 0, 0, 1], [5, 5, 5, 5]), purity([5, 5, 5, 5], [0, 0, 0, 1])
    (0.75, 1.0)
    """
    table = contingency(labels_true, labels_pred)
    largest = np.zeros(len(table.columns), dtype=np.int64)
    np.maximum.at(largest, table.cell_columns, table.cells)
    return float(largest.sum()) / table.n_points


@dataclass(frozen=True)
class ClusteringScores:
    """How well a clustering agrees with the classes."""

    nmi: float  # geometric mean of the entropies, the paper's
    vmeasure: float  # arithmetic mean: scikit-learn's NMI
    ami: float
    ari: float
    pairwise_precision: float
    pairwise_recall: float
    pairwise_f1: float
    bcubed_precision: float
    bcubed_recall: float
    bcubed_f1: float
    purity: float


def clustering_scores(labels_true: ArrayLike, labels_pred: ArrayLike | None = None) -> ClusteringScores:
    """All of these scores from one table, each as its own function gives it.

    >>> clustering_scores([0, 0, 0, 1], [5, 5, 5, 5]).purity
    0.75
    """
    table = contingency(labels_true, labels_pred)
    scores = [score_contingency(score, table) for score in (kernels.NMI, kernels.VMEASURE, kernels.AMI, kernels.ARI)]
    pairs, points = precision_recall(table)
    scores += [*pairs, pairs.f1, *points, points.f1, purity(table)]
    return ClusteringScores(*scores)
