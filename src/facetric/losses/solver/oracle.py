"""The oracle score F̃ of the paper: how well the true classes could be clustered if each chose its own best medoid.

:func:`score_gap` is F − F̃ as a function of the points, with its gradient: all of the loss that moves the embedding.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.losses.solver.compiled import Distances, Index, inner_kernel
from facetric.losses.solver.problem import ClusteringProblem


def oracle_medoids(problem: ClusteringProblem) -> NDArray[np.int64]:
    """For each class its medoid: the member with the least sum of distances from the others. (n_clusters,)

    Ties go to the lowest index, within the problem's tolerance.
    """
    by_class = np.argsort(problem.classes, kind="stable")
    ends = np.cumsum(np.bincount(problem.classes))
    medoids: NDArray[np.int64] = _class_medoids(problem.distances, by_class, ends, problem.tolerance)
    return medoids


@njit(cache=True, nogil=True)
def _class_medoids(
    distances: Distances, by_class: NDArray[np.int64], ends: NDArray[np.int64], tolerance: float
) -> NDArray[np.int64]:
    medoids = np.empty(len(ends), dtype=np.int64)
    cost = np.empty(len(by_class))
    start = 0
    for c in range(len(ends)):
        members = by_class[start : ends[c]]  # ascending
        start = ends[c]
        for j in members:
            cost[j] = 0.0
        for i in members:
            for j in members:
                cost[j] += distances[i, j]
        least = np.inf
        for j in members:
            least = min(least, cost[j])
        for j in members:
            if cost[j] <= least + tolerance:
                medoids[c] = j
                break
    return medoids


@njit(cache=True, nogil=True)
def score_gap(
    points: Distances, medoid_of: NDArray[np.int64], oracle_of: NDArray[np.int64], squared: bool
) -> tuple[float, Distances]:
    """F − F̃ of points (m, d), each assigned to medoid_of[i] in F and to oracle_of[i] in F̃; and its gradient (m, d).

    A point with the same medoid in both contributes exactly nothing. The gradient of a distance of zero is zero.
    """
    gap = 0.0
    gradient = np.zeros(points.shape)
    for i in range(len(points)):
        if medoid_of[i] != oracle_of[i]:
            gap += _add_gradient(points, gradient, i, oracle_of[i], 1.0, squared)
            gap -= _add_gradient(points, gradient, i, medoid_of[i], -1.0, squared)
    return gap, gradient.astype(points.dtype)


@inner_kernel()
def _add_gradient(points: Distances, gradient: NDArray[np.float64], i: Index, j: Index, sign: float, squared: bool) -> float:
    """The distance of point i to point j; adds its gradient, times `sign`, to the rows of both."""
    square = 0.0
    for k in range(points.shape[1]):
        difference = np.float64(points[i, k]) - np.float64(points[j, k])
        square += difference * difference
    distance = square if squared else np.sqrt(square)
    if distance > 0.0:
        scale = 2.0 * sign if squared else sign / distance
        for k in range(points.shape[1]):
            step = scale * (np.float64(points[i, k]) - np.float64(points[j, k]))
            gradient[i, k] += step
            gradient[j, k] -= step
    return distance
