"""The oracle score F̃ of the paper: how well the true classes could be clustered if each chose its own best medoid."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from facetric.solver.problem import ClusteringProblem


def oracle_medoids(problem: ClusteringProblem) -> NDArray[np.int64]:
    """For each class its medoid: the member with the least sum of distances from the others. (n_clusters,)

    Ties go to the lowest index, within the problem's tolerance.
    """
    same_class = problem.classes[:, None] == problem.classes[None, :]  # (m, m)
    cost = np.where(same_class, problem.distances, 0.0).sum(axis=0)  # (m,) of each point as the medoid of its class
    least = np.full(problem.n_clusters, np.inf)
    np.minimum.at(least, problem.classes, cost)
    tied = np.flatnonzero(cost <= least[problem.classes] + problem.tolerance)
    medoids = np.empty(problem.n_clusters, dtype=np.int64)
    medoids[problem.classes[tied][::-1]] = tied[::-1]  # the last write, the lowest index, wins
    return medoids
