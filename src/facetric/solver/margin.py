"""The structured margin Δ = 1 − score (the paper's Eq. for Δ) on a contingency table that changes point by point.

The kernels keep the table of clusters × classes and the sums behind its score. Moving a point updates a few terms; the
score of a candidate is read off the sums. Nothing is ever recounted, and no score function is called per candidate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numba import njit, objmode
from numpy.typing import NDArray

from facetric.metrics.agreement import AMI, SCORES, ZERO_ONE, agreement, expected_mutual_information, phi_table
from facetric.metrics.matching import matched_points
from facetric.solver.problem import ClusteringProblem, MarginFunction

CALLABLE = len(SCORES)
_CELLS, _ROWS, _EXPECTED = range(3)


class Margin(NamedTuple):
    """What stays fixed while one problem is solved."""

    score: int  # which score, a value of SCORES or CALLABLE
    token: int  # names the user's function while it is in use (CALLABLE only)
    n_points: int
    phi: NDArray[np.float64]  # (m + 1,) φ(0) … φ(m)
    expected: NDArray[np.float64]  # (m + 1,) a cluster's share in the expected mutual information, by its size (AMI only)
    columns: float  # Σ φ(class sizes)


class Counts(NamedTuple):
    """The contingency table of the current clustering, and its sums."""

    table: NDArray[np.int64]  # (n_clusters, n_classes)
    sizes: NDArray[np.int64]  # (n_clusters,)
    sums: NDArray[np.float64]  # Σ φ(cells), Σ φ(sizes), Σ expected(sizes)


@contextmanager
def compiled_margin(problem: ClusteringProblem) -> Iterator[Margin]:
    """The problem's margin in the form that the kernels take, valid inside the `with` block."""
    n_points = problem.n_points
    class_sizes = np.bincount(problem.classes)
    score = CALLABLE if callable(problem.margin) else SCORES[problem.margin]
    phi = phi_table(score, n_points)
    if score == AMI:
        expected = expected_mutual_information(np.arange(n_points + 1), class_sizes, n_points)
    else:
        expected = np.zeros(n_points + 1)
    token = -1
    if callable(problem.margin):
        token = next(_tokens)
        _functions_in_use[token] = problem.margin
    try:
        yield Margin(score, token, n_points, phi, expected, float(phi[class_sizes].sum()))
    finally:
        _functions_in_use.pop(token, None)


_tokens = itertools.count()
_functions_in_use: dict[int, MarginFunction] = {}  # keyed by token, so that threads never see each other's


def _call_function(token: int, table: NDArray[np.int64]) -> float:
    score = float(_functions_in_use[token](table.copy()))
    if math.isnan(score):
        raise ValueError(
            f"the margin function returned NaN for the contingency table {table.tolist()}: return a number in [0, 1]"
        )
    return score


@njit(cache=True)  # it takes the GIL for the call into Python
def _callback(token: int, table: NDArray[np.int64]) -> float:
    with objmode(score="float64"):
        score = _call_function(token, table)
    return score  # noqa: RET504  (numba types the variable that leaves the object-mode block)


@njit(cache=True, nogil=True)
def count(margin: Margin, assignment: NDArray[np.int64], classes: NDArray[np.int64], n_clusters: int) -> Counts:
    """The table of a clustering, counted from scratch."""
    table = np.zeros((n_clusters, classes.max() + 1), dtype=np.int64)
    sizes = np.zeros(n_clusters, dtype=np.int64)
    sums = np.zeros(3)
    counts = Counts(table, sizes, sums)
    for i in range(len(assignment)):
        _put(margin, counts, classes[i], assignment[i])
    return counts


@njit(cache=True, nogil=True, inline="always")
def _put(margin: Margin, counts: Counts, class_label: int, cluster: int) -> None:
    n = counts.table[cluster, class_label]
    size = counts.sizes[cluster]
    counts.sums[_CELLS] += margin.phi[n + 1] - margin.phi[n]
    counts.sums[_ROWS] += margin.phi[size + 1] - margin.phi[size]
    counts.sums[_EXPECTED] += margin.expected[size + 1] - margin.expected[size]
    counts.table[cluster, class_label] = n + 1
    counts.sizes[cluster] = size + 1


@njit(cache=True, nogil=True, inline="always")
def move(margin: Margin, counts: Counts, class_label: int, source: int, target: int) -> None:
    """One point of this class goes from cluster `source` to cluster `target`."""
    n = counts.table[source, class_label]
    size = counts.sizes[source]
    counts.sums[_CELLS] += margin.phi[n - 1] - margin.phi[n]
    counts.sums[_ROWS] += margin.phi[size - 1] - margin.phi[size]
    counts.sums[_EXPECTED] += margin.expected[size - 1] - margin.expected[size]
    counts.table[source, class_label] = n - 1
    counts.sizes[source] = size - 1
    _put(margin, counts, class_label, target)


@njit(cache=True, nogil=True, inline="always")
def move_back(counts: Counts, class_label: int, source: int, target: int) -> None:
    """Undo `move` in the counts; the caller restores the three sums that it saved, exactly."""
    counts.table[target, class_label] -= 1
    counts.sizes[target] -= 1
    counts.table[source, class_label] += 1
    counts.sizes[source] += 1


@njit(cache=True, nogil=True)
def delta(margin: Margin, counts: Counts, n_clusters: int) -> float:
    """Δ in [0, 1] of the table's first `n_clusters` rows (all that are in use)."""
    if margin.score == ZERO_ONE:
        score = matched_points(counts.table[:n_clusters]) / margin.n_points
    elif margin.score == CALLABLE:
        score = _callback(margin.token, counts.table[:n_clusters])
    else:
        score = agreement(
            margin.score,
            margin.n_points,
            counts.sums[_CELLS],
            counts.sums[_ROWS],
            margin.columns,
            counts.sums[_EXPECTED],
        )
    return 1.0 - min(max(score, 0.0), 1.0)
