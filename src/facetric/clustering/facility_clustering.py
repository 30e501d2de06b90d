"""Facility location as a scikit-learn clusterer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import base  # type: ignore[import-untyped]
from sklearn.metrics.pairwise import euclidean_distances  # type: ignore[import-untyped]
from sklearn.utils.validation import check_is_fitted, validate_data  # type: ignore[import-untyped]

from facetric.clustering.kmeans import KMeans, two_nearest
from facetric.clustering.knn import (
    COSINE,
    EUCLIDEAN,
    SQUARED,
    Metric,
    check_distance,
    check_options,
    checked_number,
    checked_weights,
    prepared,
)
from facetric.clustering.links import Links
from facetric.clustering.points import Points
from facetric.progress import Progress


class FacilityLocation(base.ClassNamePrefixFeaturesOutMixin, base.TransformerMixin, base.ClusterMixin, base.BaseEstimator):
    """Clusters around medoids that minimize the sum of distances: k of them, or as many as pay for their opening cost λ.

        n_clusters = k:     min over |S| = k of  Σ_i w_i·min_{j ∈ S} d(i, j)
        opening_cost = λ:   min over S of        Σ_i w_i·min_{j ∈ S} d(i, j) + λ·|S|

    Greedy, then moves until none helps: exchange a medoid for a point; with an opening cost also add or drop one. A cluster is
    opened when it saves more than λ, nobody travels farther than λ, and a point with no one near stays alone. The result does not
    depend on the order of the points, but for ties, and nothing is drawn: there is no random_state. Up to 10,000 points all
    distances are used; beyond, the search runs on a graph of nearest neighbors, level by level, in memory that grows linearly.

    Parameters
    ----------
    n_clusters : int, optional
        k; with an opening cost, at most so many.
    opening_cost : float, optional
        λ, in units of the distance (of its square when `squared`).
    centers : {"means", "medoids"}, optional
        "means" runs k-means from the clusters of medoids for squared distances, the default with n_clusters alone; "medoids"
        stays with the medoids, the default and the only choice with opening_cost, whose guarantees are about medoids.
    metric : {"euclidean", "cosine", "precomputed"}, default="euclidean"
        "cosine" is 1 − cos; "precomputed": X is an (n, n) array of distances.
    squared : bool, default=False
        Minimize squared distances (means always do).
    n_neighbors : int, default=32
        Neighbors per point in the graph of large data.
    max_iter : int, default=100
        At most this many sweeps over all points, and iterations of k-means.

    Attributes
    ----------
    labels_ : (n,) array
        The cluster of every point.
    n_clusters_ : int
        How many there are.
    medoid_indices_ : (n_clusters,) array
        The medoid of every cluster, a row of X; ascending. With means, those it started from.
    cluster_centers_ : (n_clusters, d) array
        Medoids or means; absent when precomputed.
    objective_ : float
        The minimum found; with means, Σ squared distances to the own mean.
    ambiguity_ : (n,) array in [0, 1]
        The distance to the own center over the distance to the next best choice, which is the second center or, with an opening
        cost, staying alone at λ. 1: indifferent. For a point that is alone: λ over the distance to the nearest medoid. A medoid
        of others has no ambiguity.
    n_iter_ : int
        Sweeps of the search, plus iterations of k-means.

    See Also
    --------
    PairLinkage : clusters whose number nobody has to know.
    AverageLinkage : a threshold on mean distances.
    facetric.clustering.kmeans : k-means from random starts, as in the literature.

    Examples
    --------
    >>> X = [[0.0], [0.1], [0.2], [5.0], [5.1], [9.0]]
    >>> FacilityLocation(n_clusters=3).fit_predict(X)
    array([0, 0, 0, 1, 1, 2])
    >>> found = FacilityLocation(opening_cost=1.0).fit(X)
    >>> found.labels_, found.medoid_indices_
    (array([0, 0, 0, 1, 1, 2]), array([1, 3, 5]))
    >>> found.predict([[0.3], [7.0]])  # -1: farther than the opening cost from every medoid
    array([ 0, -1])
    >>> FacilityLocation(opening_cost=1.0).fit(X, must_link=[(4, 5)]).labels_
    array([0, 0, 0, 1, 1, 1])
    """

    def __init__(
        self,
        n_clusters: int | None = None,
        *,
        opening_cost: float | None = None,
        centers: Literal["means", "medoids"] | None = None,
        metric: Metric = "euclidean",
        squared: bool = False,
        n_neighbors: int = 32,
        max_iter: int = 100,
    ) -> None:
        self.n_clusters = n_clusters
        self.opening_cost = opening_cost
        self.centers = centers
        self.metric = metric
        self.squared = squared
        self.n_neighbors = n_neighbors
        self.max_iter = max_iter

    def fit(
        self,
        X: ArrayLike,
        y: None = None,
        sample_weight: ArrayLike | None = None,
        *,
        must_link: ArrayLike | None = None,
        cannot_link: ArrayLike | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Cluster the rows of X.

        `sample_weight` is w: a row of weight 3 counts as three equal rows. `must_link` and `cannot_link` are pairs of rows that
        share a cluster, or do not. `progress` is called with (step, done, total).
        """
        self._check_options()
        cost = None if self.opening_cost is None else float(self.opening_cost)
        means = cost is None and self.centers != "medoids" and self.metric != "precomputed"
        self._kind = SQUARED if means else (COSINE if self.metric == "cosine" else EUCLIDEAN) + self.squared
        points = self._points(X, sample_weight, progress)
        n = len(points.weights)
        links = Links.parse(must_link, cannot_link, n)
        number = None if self.n_clusters is None else checked_number(self.n_clusters, n, links.n_groups)
        self._reach = np.inf if cost is None else cost
        fit = points.fit(number if cost is None else None, cost, means, links, self.max_iter, progress)
        if cost is not None and number is not None and len(fit.medoids) > number:  # no point stays alone then
            self._reach, fit = np.inf, points.fit(number, None, False, links, self.max_iter, progress)
            fit = replace(fit, objective=fit.objective + cost * number)
        self.labels_ = fit.labels
        self.n_clusters_ = self._n_features_out = len(fit.medoids)
        self.medoid_indices_ = fit.medoids
        self.objective_ = fit.objective
        self.ambiguity_ = fit.ambiguity
        self.n_iter_ = max(1, fit.n_iterations)
        if points.vectors is not None:
            self._centers = points.vectors[fit.medoids] if fit.centers is None else fit.centers
            self.cluster_centers_ = self._centers + self._shift
        elif hasattr(self, "cluster_centers_"):
            del self.cluster_centers_
        return self

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The cluster of the nearest center; with an opening cost, −1 where that is farther than λ: none of these clusters.

        With a precomputed metric, X holds the distances of new points (rows) to the points of fit (columns).
        """
        near, costs = self._nearest(X)
        return np.where(costs <= self._reach, near, -1)

    def transform(self, X: Any) -> NDArray[Any]:
        """The distance of every row to every center, (n, n_clusters_): never squared, and Euclidean to means."""
        distances: NDArray[Any] = self._new(X)
        if self.metric != "precomputed":
            distances = euclidean_distances(distances.astype(np.float64), self._centers)
        return distances if self._kind in (EUCLIDEAN, SQUARED) else distances**2 / 2

    def score(self, X: Any, y: None = None, sample_weight: ArrayLike | None = None) -> float:
        """Minus what is minimized, for these rows and the centers of fit; a row beyond λ costs λ, its own opening."""
        costs = self._nearest(X)[1]
        costs = np.minimum(costs, self._reach) * checked_weights(sample_weight, len(costs))
        return -float(costs.sum()) - (self.opening_cost or 0.0) * self.n_clusters_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.metric == "precomputed"
        tags.input_tags.positive_only = self.metric == "precomputed"
        return tags

    def _new(self, X: Any) -> Any:
        """New rows as vectors, or as distances to the medoids."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        if self.metric == "precomputed":
            return X[:, self.medoid_indices_]
        return prepared(X, self._shift, cosine=self.metric == "cosine")

    def _nearest(self, X: Any) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
        """The nearest center of every row, and what it costs."""
        found = self._new(X)
        if self.metric != "precomputed":
            return two_nearest(found, self._centers, self._kind)[::2]
        return found.argmin(axis=1), found.min(axis=1) ** (2 if self.squared else 1)

    def _points(self, X: Any, sample_weight: Any, progress: Progress | None) -> Points:
        """The checked input: vectors or a matrix."""
        X = validate_data(self, X, dtype=[np.float64, np.float32])
        weights = checked_weights(sample_weight, len(X))
        if self.metric == "precomputed":
            if X.shape[0] != X.shape[1]:
                raise ValueError(
                    f"precomputed distances must be square, (n, n); got {X.shape}: pass all pairs, or metric='euclidean'"
                )
            return Points.of_matrix(X, weights, self.squared)
        self._shift = X.mean(axis=0, dtype=np.float64) if self.metric == "euclidean" else np.zeros(X.shape[1])
        vectors = prepared(X, self._shift, cosine=self.metric == "cosine")
        return Points.of_vectors(vectors, weights, self._kind, self.n_neighbors, progress)

    def _check_options(self) -> None:
        if self.n_clusters is None and self.opening_cost is None:
            raise ValueError("pass n_clusters, opening_cost or both; got neither: a number of clusters, or the cost of one")
        if self.centers not in (None, "means", "medoids"):
            raise ValueError(f"centers must be 'means' or 'medoids'; got {self.centers!r}: choose one of these")
        if self.centers == "means" and self.opening_cost is not None:
            raise ValueError(
                "centers='means' needs n_clusters: with opening_cost, distances to medoids decide; use centers='medoids'"
            )
        if self.centers == "means" and self.metric == "precomputed":
            raise ValueError("centers='means' needs vectors; got metric='precomputed': use centers='medoids'")
        if self.opening_cost is not None:
            check_distance("opening_cost", self.opening_cost)
        check_options(self.metric, get_args(Metric), n_neighbors=self.n_neighbors, max_iter=self.max_iter)


def facility_clusters(rows: NDArray[np.float32], n_clusters: int) -> KMeans:
    """k-means from the medoids of `FacilityLocation`, without a random start."""
    found = FacilityLocation(n_clusters).fit(rows)
    return KMeans(found.labels_, found.cluster_centers_, float(found.objective_), int(found.n_iter_))
