"""The structured margin Δ = 1 − score (the paper's Eq. for Δ) on a contingency table that changes point by point.

The kernels keep the table of clusters × classes and the sums behind its score. Moving a point updates a few terms; the
score of a candidate is read off the sums. Nothing is ever recounted, and no score function is called per candidate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit, objmode
from numpy.typing import NDArray

from facetric.metrics.agreement import (
    AMI,
    F1,
    NMI,
    SCORES,
    VMEASURE,
    ZERO_ONE,
    agreement,
    expected_mutual_information,
    phi_table,
)
from facetric.metrics.matching import matched_points
from facetric.solver.kernels import inner_kernel

if TYPE_CHECKING:
    from facetric.solver.problem import ClusteringProblem, MarginFunction

CALLABLE = len(SCORES)
_CELLS, _ROWS, _EXPECTED = range(3)


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
    expected: NDArray[np.float64]  # (m + 1,) a cluster's share in the expected mutual information, by its size (AMI only)


class Counts(NamedTuple):
    """The contingency table of the current clustering, and its sums. Unsigned: indices that need no check for a sign."""

    table: NDArray[np.uint32]  # (n_clusters, n_classes)
    sizes: NDArray[np.uint32]  # (n_clusters,)
    sums: NDArray[np.float64]  # Σ φ(cells), Σ φ(sizes), Σ expected(sizes)


def margin_tables(margin: str | MarginFunction, classes: NDArray[np.int64]) -> Margin:
    """The margin in the form that the kernels take; a callable needs a token too (:func:`compiled_margin`)."""
    n_points, class_sizes = len(classes), np.bincount(classes)
    score = CALLABLE if callable(margin) else SCORES[margin]
    phi = phi_table(score, n_points)
    if score == AMI:
        expected = expected_mutual_information(np.arange(n_points + 1), class_sizes, n_points)
    else:
        expected = np.zeros(n_points + 1)
    rise = np.diff(phi, prepend=phi[0])
    return Margin(
        scale=Scale(score, n_points, float(phi[n_points]), float(phi[class_sizes].sum()), float(rise[class_sizes.max()])),
        token=-1,
        n_classes=len(class_sizes),
        classes=classes.astype(np.uint32),
        phi=phi,
        rise=rise,
        expected=expected,
    )


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


@njit(cache=True, nogil=True)
def count(margin: Margin, clusters: NDArray[np.uint32], n_clusters: int) -> Counts:
    """The table of a clustering, counted from scratch."""
    classes = margin.classes
    table = np.zeros((n_clusters, margin.n_classes), dtype=np.uint32)
    sizes = np.zeros(n_clusters, dtype=np.uint32)
    sums = np.zeros(3)
    for i in range(len(clusters)):
        table[clusters[i], classes[i]] += 1
        sums[_CELLS] += margin.rise[table[clusters[i], classes[i]]]
        sizes[clusters[i]] += 1
    for size in sizes:
        sums[_ROWS] += margin.phi[size]
        sums[_EXPECTED] += margin.expected[size]
    return Counts(table, sizes, sums)


@njit(cache=True, nogil=True)
def gather(margin: Margin, counts: Counts, points: NDArray[np.uint32], clusters: NDArray[np.uint32], target: int) -> None:
    """The points leave their clusters, all for the cluster `target`."""
    rise, expected, classes = margin.rise, margin.expected, margin.classes
    table, sizes, sums = counts
    for i in points:
        _move(rise, expected, table, sizes, sums, classes[i], clusters[i], np.uint32(target))


@inner_kernel()
def scatter(margin: Margin, counts: Counts, points: NDArray[np.uint32], source: int, clusters: NDArray[np.uint32]) -> None:
    """The points leave the cluster `source`, each for its own."""
    rise, expected, classes = margin.rise, margin.expected, margin.classes
    table, sizes, sums = counts
    for i in points:
        _move(rise, expected, table, sizes, sums, classes[i], np.uint32(source), clusters[i])


@inner_kernel()
def _move(
    rise: NDArray[np.float64],
    expected: NDArray[np.float64],
    table: NDArray[np.uint32],
    sizes: NDArray[np.uint32],
    sums: NDArray[np.float64],
    class_label: int,
    source: int,
    target: int,
) -> None:
    sums[_CELLS] += rise[table[target, class_label] + 1] - rise[table[source, class_label]]
    sums[_ROWS] += rise[sizes[target] + 1] - rise[sizes[source]]
    sums[_EXPECTED] += expected[sizes[target] + 1] - expected[sizes[target]]
    sums[_EXPECTED] += expected[sizes[source] - 1] - expected[sizes[source]]
    table[source, class_label] -= 1
    table[target, class_label] += 1
    sizes[source] -= 1
    sizes[target] += 1


@inner_kernel()
def capture_change(
    rise: NDArray[np.float64],
    table: NDArray[np.uint32],
    sizes: NDArray[np.uint32],
    classes: NDArray[np.uint32],
    clusters: NDArray[np.uint32],
    points: NDArray[np.uint32],
    start: int,
    stop: int,
    target: int,
) -> tuple[float, float]:
    """How Σφ(cells) and Σφ(sizes) would change if points[start:stop] left their clusters for the empty cluster `target`."""
    cells, rows = 0.0, 0.0
    for r in range(start, stop):
        i = points[r]
        k, c = clusters[i], classes[i]
        n_cell, size, n_new = table[k, c], sizes[k], table[target, c] + 1
        cells += rise[n_new] - rise[n_cell]
        rows += rise[r - start + 1] - rise[size]
        table[k, c] = n_cell - 1
        sizes[k] = size - 1
        table[target, c] = n_new
    for r in range(start, stop):  # the counts end as they began
        i = points[r]
        k, c = clusters[i], classes[i]
        table[k, c] += 1
        sizes[k] += 1
        table[target, c] = 0
    return cells, rows


@inner_kernel()
def expected_change(
    expected: NDArray[np.float64],
    sizes: NDArray[np.uint32],
    clusters: NDArray[np.uint32],
    points: NDArray[np.uint32],
    start: int,
    stop: int,
) -> float:
    """The same for Σ expected(sizes)."""
    change = expected[stop - start] - expected[0]
    for r in range(start, stop):
        k = clusters[points[r]]
        change += expected[sizes[k] - 1] - expected[sizes[k]]
        sizes[k] -= 1
    for r in range(start, stop):
        sizes[clusters[points[r]]] += 1
    return float(change)


@inner_kernel()
def table_delta_after_capture(
    margin: Margin,
    table: NDArray[np.uint32],
    clusters: NDArray[np.uint32],
    captured: NDArray[np.uint32],
    target: int,
) -> float:
    """Δ after that capture, for a score that needs the whole table. The table ends as it began."""
    for i in captured:
        table[clusters[i], margin.classes[i]] -= 1
        table[target, margin.classes[i]] += 1
    value = _table_delta(margin, table)
    for i in captured:
        table[clusters[i], margin.classes[i]] += 1
        table[target, margin.classes[i]] -= 1
    return value


@njit(cache=True, nogil=True)
def delta(margin: Margin, counts: Counts) -> float:
    """Δ in [0, 1] of the table."""
    if margin.scale.score >= ZERO_ONE:
        return _table_delta(margin, counts.table)
    return sums_delta(margin.scale, counts.sums[_CELLS], counts.sums[_ROWS], counts.sums[_EXPECTED])


@inner_kernel()
def sums_delta(scale: Scale, cells: float, rows: float, expected: float) -> float:
    """Δ in [0, 1] of a table with these sums."""
    score = agreement(scale.score, scale.n_points, scale.total, cells, rows, scale.columns, expected)
    return 1.0 - min(max(score, 0.0), 1.0)


@inner_kernel()
def delta_ceiling(scale: Scale, phi: NDArray[np.float64], sums: NDArray[np.float64], n_captured: int) -> float:
    """No capture of so many points, or fewer, by an empty cluster makes Δ larger than this.

    The score grows with Σφ(cells) and falls with Σφ(sizes). Taking one point from a cell of n lowers the former by
    φ(n) − φ(n − 1), most in the largest cell; the latter grows by φ(n_captured) at most, if every captured point had a
    cluster to itself.
    """
    if scale.score not in (NMI, VMEASURE, F1):
        return 1.0
    cells = max(sums[_CELLS] - n_captured * scale.largest_rise, 0.0)
    return sums_delta(scale, cells, sums[_ROWS] + phi[n_captured], 0.0)


@inner_kernel()
def _table_delta(margin: Margin, table: NDArray[np.uint32]) -> float:
    if margin.scale.score == ZERO_ONE:
        score = matched_points(table.astype(np.int64)) / margin.scale.n_points
    else:
        score = _callback(margin.token, table)
    return 1.0 - min(max(score, 0.0), 1.0)
