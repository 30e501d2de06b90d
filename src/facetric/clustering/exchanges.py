"""A last search for k medoids of many points: exchanges among the points nearest to the means, at exact costs.

The levels exchange medoids for points that stand for several others. Here every point counts for itself, and knows what it pays
at the candidates of the clusters around it: the medoid of each, and the members nearest to its mean.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array  # type: ignore[import-untyped]

from facetric.clustering.centers import two_nearest, weighted_means
from facetric.clustering.distances import pair_cost
from facetric.clustering.graph import sparse_problem
from facetric.clustering.levels import Cloud, Clusters, own_costs
from facetric.clustering.neighbors import in_blocks
from facetric.clustering.solve import solve
from facetric.clustering.state import Sparse, unserved_cost

_N_CANDIDATES = 8  # per cluster
_N_CLUSTERS = 10  # that a point looks at
_MAX_ROUNDS = 4
_SMALLEST_GAIN = 1e-6  # a round that saves less, as a fraction, is the last


def exchange_near_means(cloud: Cloud, clusters: Clusters, max_sweeps: int) -> Clusters:
    """As many clusters, at a total cost that is not higher: rounds of exchanges until one saves next to nothing."""
    k, total = len(clusters.medoids), float(own_costs(cloud, clusters.medoids, clusters.labels).sum())
    for _ in range(_MAX_ROUNDS):
        found = solve(_problem(cloud, clusters), n_clusters=k, start=clusters.medoids, max_sweeps=max_sweeps)
        centers = cloud.vectors[found.medoids]
        labels = two_nearest(cloud.vectors, centers, cosine=cloud.cosine, squared=cloud.squared).near
        labels[found.medoids] = np.arange(k)
        value = float(own_costs(cloud, found.medoids, labels).sum())
        if not value < total:
            break
        gain, total = total - value, value
        clusters = Clusters(labels, found.medoids, clusters.n_sweeps + found.n_sweeps)
        if gain < _SMALLEST_GAIN * total:
            break
    return clusters


def _problem(cloud: Cloud, clusters: Clusters) -> Sparse:
    """Every point with the candidates of its own cluster and of those with the nearest medoids."""
    vectors, medoids, n = cloud.vectors, clusters.medoids, len(cloud.vectors)
    candidates = _candidates(vectors, clusters)  # (k, c), −1 where a cluster has fewer
    n_near = min(_N_CLUSTERS, len(medoids))
    near = np.empty((n, n_near), dtype=np.int64)
    centers = vectors[medoids]
    squares = np.einsum("kd,kd->k", centers, centers)

    def search(rows: slice) -> None:
        keys = squares - 2 * (vectors[rows] @ centers.T)
        keys[np.arange(len(keys)), clusters.labels[rows]] = -np.inf
        near[rows] = np.argpartition(keys, n_near - 1, axis=1)[:, :n_near]

    in_blocks(search, n)
    first = np.concatenate([[0], np.cumsum((candidates >= 0).sum(axis=1)[near].sum(axis=1))])
    facilities, costs = np.empty(first[-1], dtype=np.int32), np.empty(first[-1], dtype=np.float32)

    def fill(rows: slice) -> None:
        _fill(vectors, candidates, near, first, rows.start, rows.stop, cloud.cosine, cloud.squared, facilities, costs)

    in_blocks(fill, n)
    by_client = csr_array((costs, facilities, first), shape=(n, n))
    return sparse_problem(by_client, np.full(n, unserved_cost(costs)), symmetric=False)


def _candidates(vectors: NDArray[np.float32], clusters: Clusters) -> NDArray[np.int64]:
    """The medoid of every cluster, and the other members nearest to the mean."""
    k, labels = len(clusters.medoids), clusters.labels
    means = weighted_means(vectors, np.ones(len(vectors)), labels, k)
    keys = np.square(vectors - means[labels], dtype=np.float64).sum(axis=1)
    keys[clusters.medoids] = -1.0
    order = np.lexsort((keys, labels))
    ranks = np.arange(len(order)) - np.searchsorted(labels[order], np.arange(k))[labels[order]]
    kept = ranks < _N_CANDIDATES
    candidates = np.full((k, _N_CANDIDATES), -1)
    candidates[labels[order][kept], ranks[kept]] = order[kept]
    return candidates


@njit(cache=True, nogil=True)
def _fill(
    vectors: NDArray[np.float32],
    candidates: NDArray[np.int64],
    near: NDArray[np.int64],
    first: NDArray[np.int64],
    start: int,
    stop: int,
    cosine: bool,
    squared: bool,
    facilities: NDArray[np.int32],
    costs: NDArray[np.float32],
) -> None:
    for i in range(start, stop):
        end = first[i]
        for cluster in near[i]:
            for candidate in candidates[cluster]:
                if candidate >= 0:
                    facilities[end] = candidate
                    costs[end] = pair_cost(vectors[i], vectors[candidate], cosine, squared)
                    end += 1
