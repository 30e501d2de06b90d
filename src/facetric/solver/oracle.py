"""The oracle score F̃ of the paper: how well the true classes could be clustered if each chose its own best medoid."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.solver.kernels import Distances
from facetric.solver.problem import ClusteringProblem


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
