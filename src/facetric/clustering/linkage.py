"""Average linkage as a scikit-learn clusterer, for any number of points."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClusterMixin  # type: ignore[import-untyped]
from sklearn.utils.validation import check_is_fitted, validate_data  # type: ignore[import-untyped]

from facetric.clustering.kmeans import TwoNearest, two_nearest, two_nearest_in_reach
from facetric.clustering.knn import check_distance, check_options, checked_number, checked_weights, prepared
from facetric.clustering.links import Links
from facetric.clustering.merging import Blobs
from facetric.clustering.points import MAX_ALL_PAIRS
from facetric.clustering.tree import Tree, average_linkage, summaries
from facetric.progress import Progress


class AverageLinkage(ClusterMixin, BaseEstimator):
    """Clusters whose members are near each other on average: the two nearest merge, up to a threshold or a number of clusters.

        distance(A, B)² = mean of ‖x − y‖² over x ∈ A, y ∈ B

    The mean does not grow with the number of points, so one threshold suits large and small classes, and points that are alone.
    It needs no matrix of distances (:mod:`facetric.clustering.merging`). Nothing is drawn: there is no random_state. Up to 2,000
    points the result is that of all distances; beyond, clusters merge when one is among the nearest of the other. There is no
    objective, so no `score`.

    Without a threshold or a number, merging stops where clusters are farthest from merging again: at the largest mean over points
    of 1 − b/d, with b and d the distances at which the point's cluster merged last and would merge next; 0 where it is alone. Of
    several levels (series of shots, breeds, species) that takes the one that stands out, which need not be that of your classes,
    and where none does it still takes one. :class:`PairLinkage` needs no threshold.

    Parameters
    ----------
    threshold : float, optional
        Clusters merge up to this distance: the root mean square for "euclidean", the mean for "cosine".
    n_clusters : int, optional
        So many clusters; with a threshold, at most so many.
    metric : {"euclidean", "cosine"}, default="euclidean"
        "cosine" is 1 − cos.
    n_neighbors : int, default=32
        Neighbors per point, and then per cluster, that are looked at.

    Attributes
    ----------
    labels_ : (n,) array
        The cluster of every point, numbered by first appearance.
    n_clusters_ : int
        How many there are.
    threshold_ : float
        The threshold; if it was not given, or gave too many clusters, halfway between the last merge and the next.
    cluster_centers_ : (n_clusters, d) array
        The mean of every cluster.
    medoid_indices_ : (n_clusters,) array
        The member nearest to the mean, a row of X.
    ambiguity_ : (n,) array in [0, 1]
        The distance to the other members over the distance to the next best choice, which is another cluster or staying alone at
        the threshold. 1: indifferent. For a point that is alone: the threshold over the distance to the nearest cluster.

    See Also
    --------
    PairLinkage : clusters by learned links, whose number nobody has to know, and says what precision to expect.
    FacilityLocation : a given number of clusters, or clusters that pay for an opening cost.

    Examples
    --------
    >>> X = [[0.0], [0.1], [0.2], [5.0], [5.1], [9.0]]
    >>> AverageLinkage(1.0).fit_predict(X)
    array([0, 0, 0, 1, 1, 2])
    >>> AverageLinkage(n_clusters=2).fit_predict(X)
    array([0, 0, 0, 1, 1, 1])
    >>> AverageLinkage().fit_predict(X)
    array([0, 0, 0, 1, 1, 2])
    >>> AverageLinkage(1.0).fit(X, cannot_link=[(3, 4)]).labels_
    array([0, 0, 0, 1, 2, 3])
    >>> AverageLinkage(1.0).fit(X).predict([[0.3], [7.0]])  # -1: no cluster is within the threshold
    array([ 0, -1])
    """

    def __init__(
        self,
        threshold: float | None = None,
        *,
        n_clusters: int | None = None,
        metric: Literal["euclidean", "cosine"] = "euclidean",
        n_neighbors: int = 32,
    ) -> None:
        self.threshold = threshold
        self.n_clusters = n_clusters
        self.metric = metric
        self.n_neighbors = n_neighbors

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

        A row with a `sample_weight` of 3 counts as three equal rows. `must_link` and `cannot_link` are pairs of rows that share a
        cluster, or do not. `progress` is called with (step, done, total).
        """
        vectors = self._vectors(X, reset=True)
        weights = checked_weights(sample_weight, len(vectors))
        links = Links.parse(must_link, cannot_link, len(vectors))
        limit = np.inf  # the threshold as a mean squared distance; for unit vectors ‖x − y‖² = 2·(1 − cos)
        if self.threshold is not None:
            check_distance("threshold", self.threshold)
            limit = 2 * float(self.threshold) if self.metric == "cosine" else min(float(self.threshold), 1e150) ** 2
        least = 0 if self.n_clusters is None else links.n_groups - checked_number(self.n_clusters, len(weights), links.n_groups)
        end = limit if self.n_clusters is None else np.inf
        tree = average_linkage(vectors, end, n_neighbors=self.n_neighbors, links=links, weights=weights, progress=progress)
        if least > len(tree.links):
            raise ValueError(
                f"n_clusters ({self.n_clusters}) is below the {links.n_groups - len(tree.links)} clusters that cannot_link keeps "
                "apart: raise it, or remove links"
            )
        heights = np.sort(tree.links)
        within = 0 if self.threshold is None else int(np.searchsorted(heights, limit, side="right"))
        n_merges = max(within, least) if (self.threshold, self.n_clusters) != (None, None) else tree.most_persistent(weights)
        if self.threshold is None or n_merges > within:  # halfway to the next merge
            limit = float(np.sqrt(np.concatenate([[0.0], heights, [np.inf]])[n_merges : n_merges + 2]).mean() ** 2)
        self._limit = limit
        self.labels_ = tree.after(n_merges)
        self.n_clusters_ = links.n_groups - n_merges
        self.threshold_ = limit / 2 if self.metric == "cosine" else float(np.sqrt(limit))
        self._blobs = summaries(vectors, weights, self.labels_)
        self.cluster_centers_ = self._blobs.means + self._shift
        squares = np.square(vectors - self._blobs.means[self.labels_], dtype=np.float64).sum(axis=1)
        order = np.lexsort((squares, self.labels_))
        self.medoid_indices_ = order[np.searchsorted(self.labels_[order], np.arange(len(self._blobs.sizes)))]
        self.ambiguity_ = self._ambiguity(vectors, squares, tree, weights)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """The nearest cluster; −1 where its members are farther than the threshold on average: none of these clusters."""
        check_is_fitted(self)
        found = two_nearest(_raised(self._vectors(X, reset=False)), _centers(self._blobs))
        return np.where(found.near_costs <= self._limit, found.near, -1)

    def _vectors(self, X: Any, *, reset: bool) -> NDArray[np.float32]:
        check_options(self.metric, ("euclidean", "cosine"), n_neighbors=self.n_neighbors)
        X = validate_data(self, X, reset=reset, dtype=[np.float64, np.float32])
        if reset:
            self._shift = X.mean(axis=0, dtype=np.float64) if self.metric == "euclidean" else np.zeros(X.shape[1])
        return prepared(X, self._shift, cosine=self.metric == "cosine")

    def _ambiguity(
        self, vectors: NDArray[np.float32], squares: NDArray[np.float64], tree: Tree, weights: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        sizes, limit = self._blobs.sizes[self.labels_], self._limit
        others = sizes - np.minimum(weights, 1.0)  # of a point that counts twice, the other half
        has_others = others > 0
        own = np.divide(
            (squares + self._blobs.spreads[self.labels_]) * sizes, others, out=np.full(len(sizes), limit), where=has_others
        )
        found = self._two_nearest(vectors, tree)
        other = np.where(found.near == self.labels_, found.second_costs, found.near_costs)
        other = np.where(has_others, np.minimum(other, limit), other)
        ratio = np.divide(own, other, out=np.ones(len(own)), where=(other > 0) & np.isfinite(other))
        ambiguity = np.clip(ratio if self.metric == "cosine" else np.sqrt(ratio), 0.0, 1.0)
        return np.where(np.isfinite(other), ambiguity, 0.0)

    def _two_nearest(self, vectors: NDArray[np.float32], tree: Tree) -> TwoNearest:
        """The two nearest clusters of every point: of all, or, where that would take too long, of those in its reach."""
        points, centers = _raised(vectors), _centers(self._blobs)
        if len(points) * len(centers) <= MAX_ALL_PAIRS:
            return two_nearest(points, centers)
        found = two_nearest_in_reach(points, centers, self.labels_, *tree.neighbors[:2])
        alone = np.flatnonzero(np.bincount(self.labels_)[self.labels_] == 1)
        for array, values in zip(found, two_nearest(points[alone], centers), strict=True):
            array[alone] = values
        return found


def _raised(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Points with one more coordinate, 0: there the squared distance to a raised center is the mean over its cluster."""
    return np.column_stack([vectors, np.zeros(len(vectors), dtype=np.float32)])


def _centers(blobs: Blobs) -> NDArray[np.float32]:
    return np.column_stack([blobs.means, np.sqrt(blobs.spreads)]).astype(np.float32)
