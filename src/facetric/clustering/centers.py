"""Points and centers: the two nearest centers of every point, and Lloyd's algorithm from a given clustering."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.clustering.knn import in_blocks, pair_cost

_SMALLEST_GAIN = 1e-7  # Lloyd stops when an iteration improves the objective by less than this fraction


class TwoNearest(NamedTuple):
    """The nearest and the second nearest center of every point, and what they cost; −1 and ∞ where there is none."""

    near: NDArray[np.int64]  # (n,)
    second: NDArray[np.int64]  # (n,)
    near_costs: NDArray[np.float64]  # (n,)
    second_costs: NDArray[np.float64]  # (n,)


class Means(NamedTuple):
    """The result of Lloyd's algorithm."""

    labels: NDArray[np.int64]  # (n,)
    centers: NDArray[np.float32]  # (k, d)
    objective: float  # Σ weight × squared distance to the own center
    n_iterations: int


Assign = Callable[[NDArray[np.float32], NDArray[np.int64]], TwoNearest]  # (centers, labels so far) → the two nearest


def _nobody(n: int) -> TwoNearest:
    return TwoNearest(np.full(n, -1), np.full(n, -1), np.full(n, np.inf), np.full(n, np.inf))


def two_nearest(
    vectors: NDArray[np.float32], centers: NDArray[np.float32], *, cosine: bool = False, squared: bool = False
) -> TwoNearest:
    """Every point against all centers, in float32 products; the costs of the two that are found come from differences."""
    found = _nobody(len(vectors))
    shift = centers.mean(axis=0)
    right = np.ascontiguousarray((centers - shift).T)
    squares = np.einsum("dk,dk->k", right, right)

    def search(rows: slice) -> None:
        products = (-2 * (vectors[rows] - shift)) @ right
        near, second, near_costs, second_costs = found
        out = near[rows], second[rows], near_costs[rows], second_costs[rows]
        _pick_two(products, squares, vectors[rows], centers, cosine, squared, *out)

    in_blocks(search, len(vectors))
    return found


def two_nearest_in_reach(
    vectors: NDArray[np.float32],
    centers: NDArray[np.float32],
    labels: NDArray[np.int64],
    first: NDArray[np.int64],
    others: NDArray[np.int32],
    *,
    cosine: bool = False,
    squared: bool = False,
) -> TwoNearest:
    """Every point against the centers of its own cluster and of those of its neighbors, others[first[i] : first[i + 1]]."""
    found = _nobody(len(vectors))

    def search(rows: slice) -> None:
        _pick_two_in_reach(vectors, centers, labels, first, others, rows.start, rows.stop, cosine, squared, *found)

    in_blocks(search, len(vectors))
    return found


def lloyd(
    vectors: NDArray[np.float32],
    labels: NDArray[np.int64],
    n_clusters: int,
    *,
    weights: NDArray[np.float64] | None = None,
    frozen: NDArray[np.bool_] | None = None,
    assign: Assign | None = None,
    max_iterations: int = 100,
) -> Means:
    """k-means from the means of this clustering. `frozen` points keep their cluster; an empty one takes the farthest point."""
    weights = np.ones(len(vectors)) if weights is None else weights
    frozen = np.zeros(len(vectors), dtype=np.bool_) if frozen is None else frozen
    assign = assign or (lambda centers, _: two_nearest(vectors, centers, squared=True))
    labels = labels.astype(np.int64)
    centers = weighted_means(vectors, weights, labels, n_clusters)
    objective = _objective(vectors, weights, centers, labels)
    n_iterations = 0
    while n_iterations < max_iterations:
        n_iterations += 1
        found = assign(centers, labels)
        moved = np.where(frozen, labels, found.near)
        fill_empty_clusters(moved, found.near_costs, frozen, n_clusters)
        means = weighted_means(vectors, weights, moved, n_clusters)
        value = _objective(vectors, weights, means, moved)
        if not value < objective:
            break
        gain, objective, labels, centers = objective - value, value, moved, means
        if gain < _SMALLEST_GAIN * objective:
            break
    return Means(labels, centers, objective, n_iterations)


def fill_empty_clusters(
    labels: NDArray[np.int64], costs: NDArray[np.floating], frozen: NDArray[np.bool_], n_clusters: int
) -> None:
    """Move the points farthest from their centers, out of clusters that have others, into the clusters that have none."""
    sizes = np.bincount(labels, minlength=n_clusters)
    empty = np.flatnonzero(sizes == 0).tolist()
    if not empty:
        return
    for point in np.argsort(-costs, kind="stable"):
        if not empty:
            break
        if sizes[labels[point]] > 1 and not frozen[point]:
            sizes[labels[point]] -= 1
            labels[point] = empty.pop(0)
            sizes[labels[point]] = 1


@njit(cache=True, nogil=True)
def weighted_means(
    vectors: NDArray[np.float32], weights: NDArray[np.float64], labels: NDArray[np.int64], n_clusters: int
) -> NDArray[np.float32]:
    """The weighted mean of every cluster, summed in float64 in the order of the points. (k, d)"""
    sums, sizes = np.zeros((n_clusters, vectors.shape[1])), np.zeros((n_clusters, 1))
    for i in range(len(vectors)):
        sizes[labels[i], 0] += weights[i]
        for j in range(vectors.shape[1]):
            sums[labels[i], j] += weights[i] * vectors[i, j]
    return (sums / sizes).astype(np.float32)


@njit(cache=True, nogil=True)
def _objective(
    vectors: NDArray[np.float32], weights: NDArray[np.float64], centers: NDArray[np.float32], labels: NDArray[np.int64]
) -> float:
    total = 0.0
    for i in range(len(vectors)):
        total += weights[i] * pair_cost(vectors[i], centers[labels[i]], False, True)
    return total


@njit(cache=True, nogil=True)
def _pick_two(
    products: NDArray[np.float32],
    squares: NDArray[np.float32],
    vectors: NDArray[np.float32],
    centers: NDArray[np.float32],
    cosine: bool,
    squared: bool,
    near: NDArray[np.int64],
    second: NDArray[np.int64],
    near_costs: NDArray[np.float64],
    second_costs: NDArray[np.float64],
) -> None:
    """The two smallest keys of every row, ordered by their costs from differences; ties go to the first center."""
    for row in range(len(products)):
        best, other = np.float32(np.inf), np.float32(np.inf)
        a, b = -1, -1
        for c in range(len(squares)):
            key = products[row, c] + squares[c]
            if key < other:
                if key < best:
                    other, b = best, a
                    best, a = key, c
                else:
                    other, b = key, c
        cost_a, cost_b = pair_cost(vectors[row], centers[a], cosine, squared), np.inf
        if b >= 0:
            cost_b = pair_cost(vectors[row], centers[b], cosine, squared)
        if cost_b < cost_a or (cost_b == cost_a and b < a):
            a, b, cost_a, cost_b = b, a, cost_b, cost_a
        near[row], second[row], near_costs[row], second_costs[row] = a, b, cost_a, cost_b


@njit(cache=True, nogil=True)
def _pick_two_in_reach(
    vectors: NDArray[np.float32],
    centers: NDArray[np.float32],
    labels: NDArray[np.int64],
    first: NDArray[np.int64],
    others: NDArray[np.int32],
    start: int,
    stop: int,
    cosine: bool,
    squared: bool,
    near: NDArray[np.int64],
    second: NDArray[np.int64],
    near_costs: NDArray[np.float64],
    second_costs: NDArray[np.float64],
) -> None:
    seen = np.full(len(centers), -1, dtype=np.int32)
    for i in range(start, stop):
        near_costs[i], second_costs[i], near[i], second[i] = np.inf, np.inf, -1, -1
        for position in range(first[i] - 1, first[i + 1]):
            center = labels[i] if position < first[i] else labels[others[position]]
            if center < 0 or seen[center] == i:
                continue
            seen[center] = i
            cost = pair_cost(vectors[i], centers[center], cosine, squared)
            if cost < near_costs[i] or (cost == near_costs[i] and center < near[i]):
                second[i], second_costs[i] = near[i], near_costs[i]
                near[i], near_costs[i] = center, cost
            elif cost < second_costs[i]:
                second[i], second_costs[i] = center, cost
