"""The contingency table of a clustering and the sums behind its score, while points move from cluster to cluster."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.metrics.agreement import ZERO_ONE
from facetric.solver.kernels import Index, inner_kernel
from facetric.solver.margin import CELLS, EXPECTED, ROWS, Margin, sums_delta, table_delta


class Counts(NamedTuple):
    """The contingency table of the current clustering, and its sums. Unsigned: indices that need no check for a sign."""

    table: NDArray[np.uint32]  # (n_clusters, n_classes)
    sizes: NDArray[np.uint32]  # (n_clusters,)
    sums: NDArray[np.float64]  # Σ φ(cells), Σ φ(sizes), Σ expected(sizes)


@njit(cache=True, nogil=True)
def count(margin: Margin, clusters: NDArray[np.uint32], n_clusters: int) -> Counts:
    """The table of a clustering, counted from scratch."""
    classes = margin.classes
    table = np.zeros((n_clusters, margin.n_classes), dtype=np.uint32)
    sizes = np.zeros(n_clusters, dtype=np.uint32)
    sums = np.zeros(3)
    for i in range(len(clusters)):
        table[clusters[i], classes[i]] += 1
        sums[CELLS] += margin.rise[table[clusters[i], classes[i]]]
        sizes[clusters[i]] += 1
    for size in sizes:
        sums[ROWS] += margin.phi[size]
        sums[EXPECTED] += margin.expected[size]
    return Counts(table, sizes, sums)


@njit(cache=True, nogil=True)
def gather(margin: Margin, counts: Counts, points: NDArray[np.uint32], clusters: NDArray[np.uint32], target: Index) -> None:
    """The points leave their clusters, all for the cluster `target`."""
    rise, expected, classes = margin.rise, margin.expected, margin.classes
    table, sizes, sums = counts
    for i in points:
        _move(rise, expected, table, sizes, sums, classes[i], clusters[i], np.uint32(target))


@inner_kernel()
def scatter(margin: Margin, counts: Counts, points: NDArray[np.uint32], source: Index, clusters: NDArray[np.uint32]) -> None:
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
    class_label: Index,
    source: Index,
    target: Index,
) -> None:
    sums[CELLS] += rise[table[target, class_label] + 1] - rise[table[source, class_label]]
    sums[ROWS] += rise[sizes[target] + 1] - rise[sizes[source]]
    sums[EXPECTED] += expected[sizes[target] + 1] - expected[sizes[target]]
    sums[EXPECTED] += expected[sizes[source] - 1] - expected[sizes[source]]
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
    start: Index,
    stop: Index,
    target: Index,
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
    start: Index,
    stop: Index,
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
    target: Index,
) -> float:
    """Δ after that capture, for a score that needs the whole table. The table ends as it began."""
    for i in captured:
        table[clusters[i], margin.classes[i]] -= 1
        table[target, margin.classes[i]] += 1
    value = table_delta(margin, table)
    for i in captured:
        table[clusters[i], margin.classes[i]] += 1
        table[target, margin.classes[i]] -= 1
    return value


@njit(cache=True, nogil=True)
def delta(margin: Margin, counts: Counts) -> float:
    """Δ in [0, 1] of the table."""
    if margin.scale.score >= ZERO_ONE:
        return table_delta(margin, counts.table)
    return sums_delta(margin.scale, counts.sums[CELLS], counts.sums[ROWS], counts.sums[EXPECTED])
