"""Clusterings of many points: a neighbor graph reaches only so far, so clusters grow level by level.

The clusters found on the graph of the points become the points of the next level, with the exact costs of moving a whole cluster
(:mod:`facetric.clustering.contraction`) and a neighbor graph of their own, until no level changes anything. In the end every
point looks at the medoids of its neighbors' clusters, and every cluster for a better medoid. Linked points stay with their
cluster. Time and memory grow linearly with the number of points, but for the neighbors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.clustering.contraction import (
    Cloud,
    Groups,
    all_group_costs,
    contracted_pattern,
    dense_problem,
    sparse_group_problem,
    symmetric_graph,
)
from facetric.clustering.kmeans import two_nearest
from facetric.clustering.knn import SQUARED, fill_costs, in_blocks, neighbor_graph, pair_cost
from facetric.clustering.links import Links, solve_apart
from facetric.clustering.medoids import Medoids
from facetric.clustering.state import Problem, unserved_cost
from facetric.progress import Progress

_DENSE_LEVEL = 2000  # a level of at most this many points knows all costs
_POINTS_PER_CLUSTER = 4  # a level is fine enough for n_clusters when it has this many times as many points
_SHRINKAGE = 5  # a level for a given number of clusters has this many times fewer points than the one before
_MAX_ROUNDS = 20
_CANDIDATES = 128  # members nearest to a cluster's mean among which a better medoid is looked for


@dataclass(frozen=True, eq=False)
class Clusters:
    """A clustering of a cloud around medoids."""

    labels: NDArray[np.int64]  # (n,) position in medoids
    medoids: NDArray[np.int64]  # (k,) points
    n_sweeps: int

    def in_order(self) -> Clusters:
        """The same clusters in the order of their medoids."""
        order = np.argsort(self.medoids)
        place = np.append(np.argsort(order), -1)  # no cluster stays none
        return Clusters(place[self.labels], self.medoids[order], self.n_sweeps)


def cluster_by_number(cloud: Cloud, n_clusters: int, links: Links, max_sweeps: int, progress: Progress | None) -> Clusters:
    """Exactly n_clusters clusters: greedy picks ever fewer points to stand for the others, the last ones are searched."""
    groups, problem = _first_level(cloud, links, None)
    n_last = max(_POINTS_PER_CLUSTER * n_clusters, _DENSE_LEVEL)
    while len(groups.representatives) > n_last:
        n_kept = max(n_last, len(groups.representatives) // _SHRINKAGE)
        found = solve_apart(problem, links.cannot_between(groups.codes), n_clusters=n_kept, max_sweeps=0)
        if progress is not None:
            progress("Levels", n_kept, n_kept)
        groups, problem = _next_level(cloud, _expand(cloud, groups, found), None)
    found = solve_apart(problem, links.cannot_between(groups.codes), n_clusters=n_clusters, max_sweeps=max_sweeps)
    clusters = _separate(cloud, _expand(cloud, groups, found), links)
    return _polish(cloud, clusters, links.linked, None, progress)


def cluster_by_cost(cloud: Cloud, opening_cost: float, links: Links, max_sweeps: int, progress: Progress | None) -> Clusters:
    """As many clusters as pay for their opening cost."""
    groups, problem = _first_level(cloud, links, opening_cost)
    found = solve_apart(problem, links.cannot_between(groups.codes), opening_cost=opening_cost, max_sweeps=max_sweeps)
    start = _expand(cloud, groups, found)
    clusters, n_before = start, len(cloud.vectors) + 1
    for _ in range(_MAX_ROUNDS):
        if not 1 < len(clusters.medoids) < n_before:
            break
        n_before = len(clusters.medoids)
        if progress is not None:
            progress("Levels", n_before, n_before)
        groups, problem = _next_level(cloud, clusters, opening_cost)
        everyone = np.arange(n_before)
        cannot = links.cannot_between(groups.codes)
        found = solve_apart(problem, cannot, opening_cost=opening_cost, start=everyone, max_sweeps=max_sweeps)
        clusters = _expand(cloud, groups, found, start.n_sweeps)
        clusters = _polish(cloud, clusters, links.linked, opening_cost, progress)
    return clusters


def _first_level(cloud: Cloud, links: Links, opening_cost: float | None) -> tuple[Groups, Problem]:
    """Points, or groups of must-linked points, on the graph of all neighbors."""
    groups = Groups.of(links.codes)
    if links.joins:
        pattern = contracted_pattern(cloud.graph, links.codes)
        return groups, sparse_group_problem(cloud, groups, pattern, opening_cost)
    graph, weights = cloud.graph, cloud.weights.astype(np.float32)
    if len(links.cannot) or (weights != 1).any():  # two sides of their own: weights are the clients', and one may be forbidden
        facility_costs = graph.facility_costs * weights[graph.clients]
        client_costs = graph.client_costs * np.repeat(weights, np.diff(graph.client_first))
        graph = graph._replace(facility_costs=facility_costs, client_costs=client_costs)
    cap = unserved_cost(graph.client_costs) if opening_cost is None else opening_cost
    return groups, graph._replace(caps=cap * np.maximum(cloud.weights, 1.0))


def _next_level(cloud: Cloud, clusters: Clusters, opening_cost: float | None) -> tuple[Groups, Problem]:
    """The clusters as points: all of their costs when they are few, else those at the neighbors of their medoid."""
    groups = Groups.of(clusters.labels, clusters.medoids)
    if len(clusters.medoids) <= _DENSE_LEVEL:
        return groups, dense_problem(all_group_costs(cloud, groups), opening_cost)
    centers = cloud.vectors[clusters.medoids]
    pattern = symmetric_graph(neighbor_graph(centers, cloud.n_neighbors, cloud.kind))
    return groups, sparse_group_problem(cloud, groups, pattern, opening_cost)


def clusters_of(groups: Groups, found: Medoids, n_before: int = 0) -> Clusters:
    """From medoids among groups to clusters of points; −1 where no medoid reaches. `n_before`: sweeps of an earlier search."""
    position = np.full(len(groups.representatives), -1)
    position[found.medoids] = np.arange(len(found.medoids))
    labels = np.where(found.near >= 0, position[found.near], -1)
    return Clusters(labels[groups.codes], groups.representatives[found.medoids], n_before + found.n_sweeps)


def _expand(cloud: Cloud, groups: Groups, found: Medoids, n_before: int = 0) -> Clusters:
    """:func:`clusters_of`, where groups that no medoid reaches go to the one nearest to their representative."""
    clusters = clusters_of(groups, found, n_before)
    if len(lost := np.flatnonzero(clusters.labels < 0)):
        vectors = cloud.vectors[groups.representatives[groups.codes[lost]]]
        clusters.labels[lost] = two_nearest(vectors, cloud.vectors[clusters.medoids], cloud.kind).near
    return clusters


def _separate(cloud: Cloud, clusters: Clusters, links: Links) -> Clusters:
    """Where cannot-linked points share a cluster, because the graph reached no other, one goes to the nearest that is free."""
    labels = clusters.labels.copy()
    for a, b in links.cannot:
        if labels[a] != labels[b]:
            continue
        medoid = clusters.medoids[labels[b]]
        leaving = a if links.codes[b] == links.codes[medoid] else b
        group = np.flatnonzero(links.codes == links.codes[leaving])
        apart = links.cannot[np.isin(links.cannot, group).any(axis=1)]
        taken = labels[apart[~np.isin(apart, group)]]
        squares = ((cloud.vectors[clusters.medoids] - cloud.vectors[group].mean(axis=0)) ** 2).sum(axis=1)
        squares[taken] = np.inf
        if np.isfinite(squares).any():
            labels[group] = squares.argmin()
    return Clusters(labels, clusters.medoids, clusters.n_sweeps)


def _polish(
    cloud: Cloud, clusters: Clusters, linked: NDArray[np.bool_], opening_cost: float | None, progress: Progress | None
) -> Clusters:
    """Points to better medoids in reach, clusters to better medoids of their own, in turn while the total cost falls."""
    labels, medoids, total = clusters.labels, clusters.medoids, np.inf
    for round_ in range(_MAX_ROUNDS):
        found = cloud.two_nearest(medoids, labels)
        moved = np.where(linked, labels, found.near)
        moved[medoids] = np.arange(len(medoids))
        costs = cloud.weights * own_costs(cloud, medoids, moved)
        alone = np.empty(0, dtype=np.int64)
        if opening_cost is not None:
            alone = np.flatnonzero((costs > opening_cost) & ~linked)
            moved[alone], costs[alone] = len(medoids) + np.arange(len(alone)), 0.0
        value = float(costs.sum()) + (opening_cost or 0.0) * (len(medoids) + len(alone))
        if not value < total * (1 - 1e-6):
            break
        total, labels = value, moved
        medoids = better_medoids(cloud, labels, np.concatenate([medoids, alone]))
        if progress is not None:
            progress("Refinement", round_ + 1, _MAX_ROUNDS)
    return Clusters(labels, medoids, clusters.n_sweeps).in_order()


def own_costs(cloud: Cloud, medoids: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """What every point pays at the medoid of its cluster. (n,)"""
    costs = np.empty((len(labels), 1))
    fill_costs(cloud.vectors, medoids[labels].astype(np.int32)[:, None], cloud.kind, costs)
    return costs[:, 0]


def better_medoids(cloud: Cloud, labels: NDArray[np.int64], medoids: NDArray[np.int64]) -> NDArray[np.int64]:
    """For every cluster the cheapest of its medoid and the members nearest to its mean."""
    groups, best = Groups.of(labels, medoids), medoids.copy()

    def search(rows: slice) -> None:
        lists = groups.members, groups.first, rows.start, rows.stop
        _better_medoids(cloud.vectors, cloud.weights, *lists, cloud.kind, _CANDIDATES, best)

    in_blocks(search, len(medoids))
    return best


@njit(cache=True, nogil=True)
def _better_medoids(
    vectors: NDArray[np.float32],
    weights: NDArray[np.float64],
    members: NDArray[np.int64],
    first: NDArray[np.int64],
    start: int,
    stop: int,
    kind: int,
    n_candidates: int,
    best: NDArray[np.int64],
) -> None:
    for cluster in range(start, stop):
        own = members[first[cluster] : first[cluster + 1]]
        if len(own) <= 2:
            continue
        mean = np.zeros(vectors.shape[1])
        for i in own:
            mean += weights[i] * vectors[i]
        mean /= weights[own].sum()
        center = mean.astype(np.float32)
        keys = np.empty(len(own))
        for position in range(len(own)):
            keys[position] = pair_cost(vectors[own[position]], center, SQUARED)
        nearest = own[np.argsort(keys, kind="mergesort")[:n_candidates]]
        lowest = 0.0
        for i in own:
            lowest += weights[i] * pair_cost(vectors[i], vectors[best[cluster]], kind)
        for candidate in nearest:
            total = 0.0
            for i in own:
                total += weights[i] * pair_cost(vectors[i], vectors[candidate], kind)
                if total >= lowest:
                    break
            if total < lowest:
                lowest, best[cluster] = total, candidate
