"""The structured margin Δ = 1 − score (the paper's Eq. for Δ) on a contingency table that changes point by point.

The kernels keep the table of clusters × classes and the sums behind its score. Moving a point updates a few terms, which are
tabulated once per problem; Δ is read off the sums. Nothing is ever recounted, and no score function is called per candidate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit, objmode
from numpy.typing import NDArray

from facetric.losses.solver.compiled import Index, inner_kernel
from facetric.metrics.kernels import (
    AMI,
    F1,
    NMI,
    SCORES,
    VMEASURE,
    ZERO_ONE,
    agreement,
    expected_mutual_information,
    matched_points,
    phi_table,
)

if TYPE_CHECKING:
    from facetric.losses.solver.problem import ClusteringProblem, MarginFunction

CALLABLE = len(SCORES)
CELLS, ROWS, EXPECTED = range(3)  # the places of the three sums


class Scale(NamedTuple):
    """What a score needs beside the sums over cells and clusters."""

    score: int  # which score, a value of SCORES or CALLABLE
    n_points: int
    total: float  # φ(m)
    columns: float  # Σ φ(class sizes)
    largest_rise: float  # φ(n) − φ(n − 1) for the largest class: no cell's is larger


class Margin(NamedTuple):
    """What stays fixed while one problem is solved."""

    scale: Scale
    token: int  # names the user's function while it is in use (CALLABLE only)
    n_classes: int
    classes: NDArray[np.uint32]  # (m,)
    phi: NDArray[np.float64]  # (m + 1,) φ(0) … φ(m)
    rise: NDArray[np.float64]  # (m + 1,) φ(n) − φ(n − 1), never falling; 0 at n = 0
    expected: NDArray[np.float64]  # (m + 1,) a cluster's term in the expected mutual information, by its size (AMI only)
    expected_rise: NDArray[np.float64]  # (m + 1,) its rises likewise


def margin_tables(margin: str | MarginFunction, classes: NDArray[np.int64]) -> Margin:
    """The margin in the form that the kernels take; a callable needs a token too (:func:`compiled_margin`)."""
    n_points, class_sizes = len(classes), np.bincount(classes)
    score = CALLABLE if callable(margin) else SCORES[margin]
    phi, rise, expected = _phi_tables(score, n_points)
    expected_rise = expected
    if score == AMI:
        expected = expected_mutual_information(np.arange(n_points + 1), class_sizes, n_points)
        expected_rise = np.diff(expected, prepend=expected[0])
    return Margin(
        scale=Scale(score, n_points, float(phi[n_points]), float(phi[class_sizes].sum()), float(rise[class_sizes.max()])),
        token=-1,
        n_classes=len(class_sizes),
        classes=classes.astype(np.uint32),
        phi=phi,
        rise=rise,
        expected=expected,
        expected_rise=expected_rise,
    )


@lru_cache(maxsize=16)
def _phi_tables(score: int, n_points: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """φ, its rises, and zeros: the same for every batch of one size."""
    phi = phi_table(score, n_points)
    return phi, np.diff(phi, prepend=phi[0]), np.zeros(n_points + 1)


@contextmanager
def compiled_margin(problem: ClusteringProblem) -> Iterator[Margin]:
    """The problem's margin for the kernels, valid inside the `with` block."""
    if not callable(problem.margin):
        yield problem.margin_tables
        return
    token = next(_tokens)
    _functions_in_use[token] = problem.margin
    try:
        yield problem.margin_tables._replace(token=token)
    finally:
        _functions_in_use.pop(token, None)


_tokens = itertools.count()
_functions_in_use: dict[int, MarginFunction] = {}  # keyed by token, so that threads never see each other's


def _call_function(token: int, table: NDArray[np.uint32]) -> float:
    score = float(_functions_in_use[token](table.astype(np.int64)))
    if math.isnan(score):
        raise ValueError(
            f"the margin function returned NaN for the contingency table {table.tolist()}: return a number in [0, 1]"
        )
    return score


@njit(cache=True)  # it takes the GIL for the call into Python
def _callback(token: int, table: NDArray[np.uint32]) -> float:
    with objmode(score="float64"):
        score = _call_function(token, table)
    return score  # noqa: RET504  (numba types the variable that leaves the object-mode block)


class Counts(NamedTuple):
    """The contingency table of a clustering, and its sums. Unsigned: indices that need no check for a sign."""

    table: NDArray[np.uint32]  # (n_clusters, n_classes)
    sizes: NDArray[np.uint32]  # (n_clusters,)
    sums: NDArray[np.float64]  # Σ φ(cells), Σ φ(sizes), Σ expected(sizes)


@njit(cache=True, nogil=True)
def count(margin: Margin, clusters: NDArray[np.uint32], n_clusters: int) -> Counts:
    """The table of a clustering, counted from scratch."""
    classes, rise = margin.classes, margin.rise
    table = np.zeros((n_clusters, margin.n_classes), dtype=np.uint32)
    sizes = np.zeros(n_clusters, dtype=np.uint32)
    sums = np.zeros(3)
    for i in range(len(clusters)):
        k, c = clusters[i], classes[i]
        table[k, c] += 1
        sums[CELLS] += rise[table[k, c]]
        sizes[k] += 1
    for size in sizes:
        sums[ROWS] += margin.phi[size]
        sums[EXPECTED] += margin.expected[size]
    return Counts(table, sizes, sums)


@njit(cache=True, nogil=True)
def gather(margin: Margin, counts: Counts, points: NDArray[np.uint32], clusters: NDArray[np.uint32], target: Index) -> None:
    """The points leave their clusters, all for the cluster `target`."""
    for i in points:
        _move(margin, counts, margin.classes[i], clusters[i], np.uint32(target))


@inner_kernel()
def scatter(margin: Margin, counts: Counts, points: NDArray[np.uint32], source: Index, clusters: NDArray[np.uint32]) -> None:
    """The points leave the cluster `source`, each for its own."""
    for i in points:
        _move(margin, counts, margin.classes[i], np.uint32(source), clusters[i])


@inner_kernel()
def _move(margin: Margin, counts: Counts, class_label: Index, source: Index, target: Index) -> None:
    table, sizes, sums, rise = counts.table, counts.sizes, counts.sums, margin.rise
    sums[CELLS] += rise[table[target, class_label] + 1] - rise[table[source, class_label]]
    sums[ROWS] += rise[sizes[target] + 1] - rise[sizes[source]]
    sums[EXPECTED] += margin.expected_rise[sizes[target] + 1] - margin.expected_rise[sizes[source]]
    table[source, class_label] -= 1
    table[target, class_label] += 1
    sizes[source] -= 1
    sizes[target] += 1


@inner_kernel()
def gathered_delta(
    margin: Margin, counts: Counts, points: NDArray[np.uint32], clusters: NDArray[np.uint32], target: Index, n_clusters: Index
) -> float:
    """Δ of the first `n_clusters` rows after that move. The counts end as they began, the sums to the last bit."""
    cells, rows, expected = counts.sums[CELLS], counts.sums[ROWS], counts.sums[EXPECTED]
    gather(margin, counts, points, clusters, target)
    value = delta(margin, counts, n_clusters)
    scatter(margin, counts, points, target, clusters)
    counts.sums[CELLS], counts.sums[ROWS], counts.sums[EXPECTED] = cells, rows, expected
    return value


@njit(cache=True, nogil=True)
def delta(margin: Margin, counts: Counts, n_clusters: Index) -> float:
    """Δ in [0, 1] of the table's first `n_clusters` rows (all that are in use)."""
    if margin.scale.score < ZERO_ONE:
        return sums_delta(margin.scale, counts.sums[CELLS], counts.sums[ROWS], counts.sums[EXPECTED])
    if margin.scale.score == ZERO_ONE:
        score = matched_points(counts.table[:n_clusters].astype(np.int64)) / margin.scale.n_points
    else:
        score = _callback(margin.token, counts.table[:n_clusters])
    return 1.0 - min(max(score, 0.0), 1.0)


@njit(cache=True, nogil=True, inline="always")  # so that a loop over many tables is vectorized
def sums_delta(scale: Scale, cells: float, rows: float, expected: float) -> float:
    """Δ in [0, 1] of a table with these sums."""
    score = agreement(scale.score, scale.n_points, scale.total, cells, rows, scale.columns, expected)
    return 1.0 - min(max(score, 0.0), 1.0)


@inner_kernel()
def delta_ceiling(scale: Scale, phi: NDArray[np.float64], sums: NDArray[np.float64], n_captured: Index) -> float:
    """No capture of so many points, or fewer, by an empty cluster makes Δ larger than this.

    The score grows with Σφ(cells) and falls with Σφ(sizes). Taking one point from a cell of n lowers the former by
    φ(n) − φ(n − 1), most in the largest cell; the latter grows by φ(n_captured) at most, if every captured point had a
    cluster to itself.
    """
    if scale.score not in (NMI, VMEASURE, F1):
        return 1.0
    cells = max(sums[CELLS] - n_captured * scale.largest_rise, 0.0)
    return sums_delta(scale, cells, sums[ROWS] + phi[n_captured], 0.0)
