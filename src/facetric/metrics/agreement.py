"""Clustering scores (the paper's NMI and its relatives), each defined once for the loss's margin and for the reports.

All but one depend on the contingency table through three sums only,

    cells = Σ φ(n_rc),   rows = Σ φ(a_r),   columns = Σ φ(b_c),

over its counts n_rc, its row sums a_r and its column sums b_c, where φ(x) = x·log x for the scores built on entropies and
φ(x) = x·(x − 1)/2 for those that count pairs of points. :func:`agreement` turns the sums into the score. A solver that
moves one point from cluster to cluster therefore updates a handful of terms instead of a table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from facetric.metrics.contingency import Contingency, contingency, precision_recall
from facetric.metrics.matching import matched_points

NMI, VMEASURE, AMI, ARI, F1, ZERO_ONE = range(6)
SCORES = {"nmi": NMI, "vmeasure": VMEASURE, "ami": AMI, "ari": ARI, "f1": F1, "zero_one": ZERO_ONE}

_NO_ENTROPY = 1e-12  # nats; the smallest non-zero entropy of n points is about log(n)/n, far above this


@njit(cache=True, nogil=True)
def phi(score: int, x: float) -> float:
    """φ(x): x·log x for NMI, V-measure and AMI; the number of pairs among x points for ARI and F1."""
    if score <= AMI:
        return x * math.log(x) if x > 0 else 0.0
    return x * (x - 1.0) / 2.0


@njit(cache=True, nogil=True)
def phi_table(score: int, n: int) -> NDArray[np.float64]:
    """φ(0), φ(1), …, φ(n). (n + 1,)"""
    table = np.empty(n + 1)
    for x in range(n + 1):
        table[x] = phi(score, float(x))
    return table


@njit(cache=True, nogil=True, error_model="numpy")  # no check of divisors, so that a loop over many tables is vectorized
def agreement(score: int, n_points: int, total: float, cells: float, rows: float, columns: float, expected: float) -> float:
    """The score of a table with these sums of φ; total is φ(n_points), expected the expected mutual information (AMI only)."""
    if score <= AMI:
        mutual = (cells - rows - columns + total) / n_points
        rows_entropy = (total - rows) / n_points
        columns_entropy = (total - columns) / n_points
        if rows_entropy < _NO_ENTROPY or columns_entropy < _NO_ENTROPY:
            return 1.0 if rows_entropy < _NO_ENTROPY and columns_entropy < _NO_ENTROPY else 0.0
        if score == NMI:  # rounding must not push equal or independent partitions out of [0, 1]
            return min(max(mutual / math.sqrt(rows_entropy * columns_entropy), 0.0), 1.0)
        mean_entropy = (rows_entropy + columns_entropy) / 2.0
        if score == VMEASURE:
            return min(max(mutual / mean_entropy, 0.0), 1.0)
        if mean_entropy - expected < _NO_ENTROPY:  # both partitions are all singletons
            return 1.0
        return (mutual - expected) / (mean_entropy - expected)
    if score == ARI:
        chance = rows * columns / total if total > 0 else 0.0
        ceiling = (rows + columns) / 2.0
        return (cells - chance) / (ceiling - chance) if ceiling > chance else 1.0
    return 2.0 * cells / (rows + columns) if rows + columns > 0 else 1.0


@njit(cache=True, nogil=True)
def expected_mutual_information_term(row: int, column: int, n_points: int, log_factorial: NDArray[np.float64]) -> float:
    """The contribution of one (row sum, column sum) pair to the expected mutual information under random labeling.

    Vinh, Epps and Bailey 2010, equation 24a: the count in the cell is hypergeometric.
    """
    constant = (
        log_factorial[row]
        + log_factorial[column]
        + log_factorial[n_points - row]
        + log_factorial[n_points - column]
        - log_factorial[n_points]
    )
    term = 0.0
    for count in range(max(1, row + column - n_points), min(row, column) + 1):
        log_probability = constant - (
            log_factorial[count]
            + log_factorial[row - count]
            + log_factorial[column - count]
            + log_factorial[n_points - row - column + count]
        )
        term += count / n_points * math.log(n_points * count / (row * column)) * math.exp(log_probability)
    return term


@njit(cache=True, nogil=True)
def log_factorials(n: int) -> NDArray[np.float64]:
    """log 0!, log 1!, …, log n!. (n + 1,)"""
    table = np.empty(n + 1)
    for x in range(n + 1):
        table[x] = math.lgamma(x + 1.0)
    return table


@njit(cache=True, nogil=True)
def expected_mutual_information(rows: NDArray[np.int64], columns: NDArray[np.int64], n_points: int) -> NDArray[np.float64]:
    """For each row sum, its contribution to the expected mutual information with all columns. (n_rows,)

    Only distinct sums are computed: real tables repeat a few cluster sizes many times.
    """
    log_factorial = log_factorials(n_points)
    n_columns_of_size = np.bincount(columns)
    terms = np.zeros(len(rows))
    term_of_size = np.full(n_points + 1, -1.0)
    for r in range(len(rows)):
        row = rows[r]
        if term_of_size[row] < 0.0:
            term = 0.0
            if row > 0:
                for column in range(1, len(n_columns_of_size)):
                    if n_columns_of_size[column] > 0:
                        term += n_columns_of_size[column] * expected_mutual_information_term(row, column, n_points, log_factorial)
            term_of_size[row] = term
        terms[r] = term_of_size[row]
    return terms


def score_contingency(score: int, table: Contingency) -> float:
    """One score of one table, unclipped."""
    n_points = table.n_points
    if score == ZERO_ONE:
        return float(matched_points(table.dense())) / n_points
    expected = float(expected_mutual_information(table.rows, table.columns, n_points).sum()) if score == AMI else 0.0
    cells, rows, columns = (_phi_sum(score, counts) for counts in (table.cells, table.rows, table.columns))
    return float(agreement(score, n_points, phi(score, float(n_points)), cells, rows, columns, expected))


def _phi_sum(score: int, counts: NDArray[np.int64]) -> float:
    x = counts.astype(np.float64)
    return float(np.sum(x * np.log(x) if score <= AMI else x * (x - 1.0) / 2.0))


def nmi(labels_true: ArrayLike, labels_pred: ArrayLike | None = None) -> float:
    """Normalized mutual information MI / √(H₁·H₂), the geometric mean, as the paper writes it.

    Takes two labelings, or one contingency table of counts. If either partition has a single cluster the score is 1 when
    both have, 0 otherwise. (scikit-learn's default is the arithmetic mean: that is :func:`vmeasure` here.)

    >>> nmi([0, 0, 1, 1], [7, 7, 3, 3])
    1.0
    >>> round(nmi([[3, 1], [0, 4]]), 4)
    0.5617
    """
    return score_contingency(NMI, contingency(labels_true, labels_pred))


def vmeasure(labels_true: ArrayLike, labels_pred: ArrayLike | None = None) -> float:
    """V-measure, 2·MI / (H₁ + H₂): the harmonic mean of homogeneity and completeness, NMI with the arithmetic mean.

    >>> round(vmeasure([[3, 1], [0, 4]]), 4)
    0.5616
    """
    return score_contingency(VMEASURE, contingency(labels_true, labels_pred))


def ami(labels_true: ArrayLike, labels_pred: ArrayLike | None = None) -> float:
    """Mutual information adjusted for chance, normalized by the arithmetic mean of the entropies (scikit-learn's default).

    >>> round(ami([[3, 1], [0, 4]]), 4)
    0.5001
    """
    return score_contingency(AMI, contingency(labels_true, labels_pred))


def ari(labels_true: ArrayLike, labels_pred: ArrayLike | None = None) -> float:
    """Rand index adjusted for chance: 1 for equal partitions, about 0 for random ones, negative below chance.

    >>> round(ari([[3, 1], [0, 4]]), 4)
    0.4948
    """
    return score_contingency(ARI, contingency(labels_true, labels_pred))


def pairwise_f1(labels_true: ArrayLike, labels_pred: ArrayLike | None = None) -> float:
    """F1 over pairs of points: a pair is positive when both points share a label.

    >>> round(pairwise_f1([[3, 1], [0, 4]]), 4)
    0.72
    """
    return score_contingency(F1, contingency(labels_true, labels_pred))


def matched_accuracy(labels_true: ArrayLike, labels_pred: ArrayLike | None = None) -> float:
    """Fraction of points that keep their label under the best one-to-one matching of clusters to classes.

    >>> matched_accuracy([[3, 1], [0, 4]])
    0.875
    """
    return score_contingency(ZERO_ONE, contingency(labels_true, labels_pred))


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
    scores = [score_contingency(score, table) for score in (NMI, VMEASURE, AMI, ARI)]
    pairs, points = precision_recall(table)
    scores += [*pairs, pairs.f1, *points, points.f1, purity(table)]
    return ClusteringScores(*scores)
