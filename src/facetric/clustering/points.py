"""What is clustered: vectors or a matrix of distances, behind one pair of methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facetric.clustering.contraction import Cloud, Groups, dense_groups, dense_problem
from facetric.clustering.kmeans import TwoNearest, lloyd, two_nearest, two_nearest_in_reach, weighted_means
from facetric.clustering.knn import dense_costs
from facetric.clustering.levels import Clusters, cluster_by_cost, cluster_by_number, clusters_of, own_costs
from facetric.clustering.links import Links, solve_apart
from facetric.clustering.medoids import RECREATED
from facetric.clustering.state import Dense
from facetric.progress import Progress

MAX_DENSE = 10_000  # points whose distances are all computed: 400 MB
_NEGATIVE = "Negative values in data: distances must be at least 0; got {:.3g}: pass distances, not similarities"
MAX_ALL_PAIRS = 5e9  # points × means; beyond, a point looks at the means of its neighbors' clusters only


@dataclass(frozen=True, eq=False)
class Fit:
    """A clustering of points."""

    labels: NDArray[np.int64]  # (n,)
    medoids: NDArray[np.int64]  # (k,)
    ambiguity: NDArray[np.float64]  # (n,)
    objective: float
    n_iterations: int
    centers: NDArray[np.float32] | None = None  # (k, d) means


@dataclass(frozen=True, eq=False)
class Points:
    """n weighted points with either all costs or, when they are many, a cloud."""

    weights: NDArray[np.float64]  # (n,) how often a point counts
    vectors: NDArray[np.float32] | None = None
    costs: NDArray[np.floating] | None = None  # (n, n) facility × client, each counted once
    cloud: Cloud | None = None

    @classmethod
    def of_vectors(
        cls, vectors: NDArray[np.float32], weights: NDArray[np.float64], kind: int, n_neighbors: int, progress: Progress | None
    ) -> Points:
        if len(vectors) <= max(MAX_DENSE, n_neighbors + 1):
            return cls(weights, vectors, costs=dense_costs(vectors, kind))
        return cls(weights, vectors, cloud=Cloud.of(vectors, weights, n_neighbors, kind, progress=progress))

    @classmethod
    def of_matrix(cls, distances: NDArray[np.floating], weights: NDArray[np.float64], squared: bool) -> Points:
        if (distances < 0).any():
            raise ValueError(_NEGATIVE.format(distances.min()))
        diagonal = np.diagonal(distances)
        if diagonal.any():
            raise ValueError(
                f"the distance of a point to itself must be 0; got {np.abs(diagonal).max():.3g}: fill the diagonal with 0"
            )
        costs = np.ascontiguousarray(distances.T)  # row i of X: what point i pays
        return cls(weights, costs=costs**2 if squared else costs.copy())

    def fit(
        self,
        n_clusters: int | None,
        opening_cost: float | None,
        means: bool,
        links: Links,
        max_sweeps: int,
        progress: Progress | None,
    ) -> Fit:
        """Exactly n_clusters clusters, around means or medoids, or as many as pay for their opening cost."""
        if self.cloud is None:
            groups, problem = self._problem(links, opening_cost)
            recreated = () if means or n_clusters is None else RECREATED
            aims: dict[str, Any] = {"n_clusters": n_clusters, "opening_cost": opening_cost, "recreated": recreated}
            found = solve_apart(problem, links.cannot_between(links.codes), max_sweeps=max_sweeps, **aims)
            clusters = clusters_of(groups, found).in_order()
        elif n_clusters is not None:
            clusters = cluster_by_number(self.cloud, n_clusters, links, max_sweeps, progress)
        else:
            assert opening_cost is not None
            clusters = cluster_by_cost(self.cloud, opening_cost, links, max_sweeps, progress)
        if n_clusters is not None:
            self._check_apart(clusters, links, n_clusters)
        return self._with_means(clusters, links, max_sweeps) if means else self._fit(clusters, opening_cost)

    def _problem(self, links: Links, opening_cost: float | None) -> tuple[Groups, Dense]:
        """Points, or groups of must-linked points, with caps: the price of staying alone, or more than any cost."""
        assert self.costs is not None
        costs, groups = self.costs, Groups.of(links.codes)
        if (self.weights != 1.0).any():
            costs = costs * self.weights.astype(costs.dtype)
        if links.joins:
            groups, costs = dense_groups(costs, links.codes)
        elif len(links.cannot) and costs is self.costs:
            costs = costs.copy()  # where assignments are forbidden
        price = None if opening_cost is None else opening_cost * (1.0 if links.joins else np.maximum(self.weights, 1.0))
        return groups, dense_problem(costs, price)

    def _check_apart(self, clusters: Clusters, links: Links, n_clusters: int) -> None:
        """With a given number of clusters, cannot-linked points may find no place."""
        a, b = clusters.labels[links.cannot].T if len(links.cannot) else (np.empty(0), np.empty(0))
        wrong = np.flatnonzero((a == b) | (np.minimum(a, b) < 0))
        if len(wrong):
            x, y = links.cannot[wrong[0]]
            raise ValueError(
                f"{n_clusters} clusters cannot keep all cannot_link pairs apart (no place for {x} and {y}): raise n_clusters, "
                "or use opening_cost"
            )

    def _fit(self, clusters: Clusters, opening_cost: float | None) -> Fit:
        labels, medoids = clusters.labels, clusters.medoids
        if self.cloud is not None:
            own, found = own_costs(self.cloud, medoids, labels), self.cloud.two_nearest(medoids, labels)
            other = np.where(found.near == labels, found.second_costs, found.near_costs)
        else:
            assert self.costs is not None
            own = np.where(labels >= 0, self.costs[medoids[labels], np.arange(len(labels))], np.inf).astype(np.float64)
            other = np.full(len(labels), np.inf)
            for position, medoid in enumerate(medoids):
                np.minimum(other, self.costs[medoid], out=other, where=labels != position)
        objective = float((self.weights * own)[labels >= 0].sum()) + (opening_cost or 0.0) * len(medoids)
        return Fit(labels, medoids, self._ambiguity(own, other, labels, medoids, opening_cost), objective, clusters.n_sweeps)

    def _with_means(self, clusters: Clusters, links: Links, max_iterations: int) -> Fit:
        """k-means from the medoids' clusters: must-linked points move as their mean, cannot-linked ones stay where they are."""
        assert self.vectors is not None
        vectors, k = self.vectors, len(clusters.medoids)
        groups = Groups.of(links.codes)
        rows = weighted_means(vectors, self.weights, links.codes, links.n_groups) if links.joins else vectors
        is_wide = self.cloud is not None and len(vectors) * k > MAX_ALL_PAIRS  # looking at all centers would take n·k time
        frozen = np.zeros(len(rows), dtype=np.bool_)
        frozen[links.codes[links.cannot.ravel()]] = True
        found = lloyd(
            rows,
            clusters.labels[groups.representatives],
            k,
            weights=np.bincount(links.codes, self.weights).astype(np.float64),
            frozen=frozen,
            assign=self._in_reach if is_wide and not links.joins else None,
            max_iterations=max_iterations,
        )
        labels = found.labels[links.codes]
        near = self._in_reach(found.centers, labels) if is_wide else two_nearest(vectors, found.centers)
        own = np.sqrt(((vectors.astype(np.float64) - found.centers[labels]) ** 2).sum(axis=1))
        other = np.sqrt(np.where(near.near == labels, near.second_costs, near.near_costs))
        ambiguity = self._ambiguity(own, other, labels, np.empty(0, dtype=np.int64), None)
        n_iterations = clusters.n_sweeps + found.n_iterations
        return Fit(labels, clusters.medoids, ambiguity, float((self.weights * own**2).sum()), n_iterations, found.centers)

    def _in_reach(self, centers: NDArray[np.float32], labels: NDArray[np.int64]) -> TwoNearest:
        assert self.cloud is not None
        lists = self.cloud.graph.client_first, self.cloud.graph.facilities
        return two_nearest_in_reach(self.cloud.vectors, centers, labels, *lists)

    def _ambiguity(
        self,
        own: NDArray[np.float64],
        other: NDArray[np.float64],
        labels: NDArray[np.int64],
        medoids: NDArray[np.int64],
        opening_cost: float | None,
    ) -> NDArray[np.float64]:
        """The cost of the own choice over that of the next best, in [0, 1]; see FacilityLocation."""
        own, other = own.copy(), other.copy()
        crowd = np.ones(len(medoids), dtype=np.bool_)
        if opening_cost is not None:
            crowd = np.bincount(labels, np.maximum(self.weights, 1.0)) > 1  # a point that counts twice is not alone
            other = np.minimum(other, opening_cost, where=crowd[labels], out=other)
            own[~crowd[labels]] = opening_cost
        ambiguity = np.zeros(len(own))
        np.divide(own, other, out=ambiguity, where=(other > 0) & np.isfinite(other) & np.isfinite(own))
        ambiguity[(other == 0)] = 1.0
        ambiguity[labels < 0] = 1.0
        ambiguity[medoids[crowd]] = 0.0
        return np.clip(ambiguity, 0.0, 1.0)
