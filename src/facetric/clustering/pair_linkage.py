"""`PairLinkage`: clusters by how probable it is that two points are of one class, as labeled classes of other kinds taught it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit  # type: ignore[import-untyped]
from sklearn.base import BaseEstimator, ClusterMixin  # type: ignore[import-untyped]
from sklearn.utils.validation import validate_data  # type: ignore[import-untyped]

from facetric.clustering.answers import adapted, spread
from facetric.clustering.cut import Cut, best_cut, cut_into, halves
from facetric.clustering.knn import checked_number, prepared
from facetric.clustering.links import Links
from facetric.clustering.pair_model import PairModel
from facetric.clustering.pair_tree import PairTree
from facetric.clustering.pile import Pile
from facetric.clustering.questions import belonging, questions
from facetric.progress import Progress

_SURE = 0.01


@dataclass(frozen=True)
class Estimate:
    """A value, and the interval that holds the real one about nine times in ten."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.value:.0f}% ({100 * self.low:.0f} to {100 * self.high:.0f})"


@dataclass(frozen=True)
class ExpectedPrecision:
    """What to expect of the clusters of one set."""

    precision: Estimate  # of two points in one cluster: how often are they of one class?
    recall: float  # of two points of one class: how often are they in one cluster?

    def __str__(self) -> str:
        return f"precision {self.precision}, recall about {self.recall:.0%}"


class PairLinkage(ClusterMixin, BaseEstimator):
    """Clusters whose number nobody has to know: average linkage on the log-odds that two points are of one class, cut where the
    expected pairwise F1 is largest. Vectors are compared by their directions.

    Parameters
    ----------
    model : PairModel, optional
        How probable "of one class" is; without it, the one that comes with the install.
    shift : float, default=0.0
        Above 0 clusters are finer, below 0 coarser: so many log-odds a merge must be surer.
    n_clusters : int, optional
        Exactly so many, where the number is known.

    Attributes
    ----------
    labels_ : (n,) array
        The cluster of every point, numbered by first appearance.
    n_clusters_ : int
        How many there are.
    precision_ : (n_clusters,) array
        Of two points of this cluster, how often are they expected to be of one class? NaN for a cluster of one point.
    expected_ : ExpectedPrecision or None
        The same of all clusters together, with an interval, and the expected recall; None where all points are alone.
    ambiguity_ : (n,) array in [0, 1]
        How near the best other cluster is to being as probable as the own one; 1: at least as probable.
    questions_ : (n_questions, 2) array
        Pairs of points of which one would like to know whether they are of one class, the most useful first.

    See Also
    --------
    PairModel : is fitted to labeled classes of your own.
    AverageLinkage : clusters by a threshold of distance.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.repeat(rng.standard_normal((4, 16)), 10, axis=0) + 0.3 * rng.standard_normal((40, 16))
    >>> found = PairLinkage().fit(X)
    >>> found.n_clusters_
    4
    >>> PairLinkage().fit(X, cannot_link=[(0, 1)]).n_clusters_ > 4
    True
    """

    def __init__(self, model: PairModel | None = None, *, shift: float = 0.0, n_clusters: int | None = None) -> None:
        self.model = model
        self.shift = shift
        self.n_clusters = n_clusters

    def fit(
        self,
        X: ArrayLike | Pile,
        y: None = None,
        *,
        must_link: ArrayLike | None = None,
        cannot_link: ArrayLike | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Cluster the rows of X, or a `Pile` of them, which spares the search for neighbors when they are clustered again.

        `must_link` and `cannot_link` are pairs of rows that share a cluster, or do not; what they say about other pairs is
        learned from them. `progress` is called with (step, done, total).
        """
        pile = X if isinstance(X, Pile) else self._pile(X, progress)
        self.n_features_in_ = pile.vectors.shape[1]
        links = Links.parse(must_link, cannot_link, len(pile))
        model = self._checked(len(pile), links.n_groups)
        vectors = adapted(pile.vectors, links)
        if vectors is not None:
            pile = Pile(vectors, progress)
        scores = model.log_odds(pile)
        if self.n_clusters is not None:
            scores = model.connected(pile, scores)
        scores = spread(scores, links)
        tree, probability = model.tree(scores, links, complete=self.n_clusters is not None)
        cut = best_cut(tree, probability, self.shift) if self.n_clusters is None else cut_into(tree, probability, self.n_clusters)
        self.labels_, roots = _by_first(cut.roots[tree.leaves])
        self.n_clusters_ = len(roots)
        groups, precision = model.precision(scores, tree, probability, cut)
        self.precision_ = np.full(len(tree.sizes), np.nan)
        self.precision_[groups] = precision
        self.precision_ = self.precision_[roots]
        self.expected_ = _expected(tree, probability, cut, groups, precision, model.error)
        own, other = belonging(scores, self.labels_)
        self.ambiguity_ = np.minimum(expit(other) / np.maximum(expit(own), 1e-9), 1.0)
        last = halves(tree, cut)[tree.leaves]
        self.questions_ = questions(pile.vectors, links, scores, self.labels_, other - own, tree, probability, last)
        return self

    def _checked(self, n: int, n_groups: int) -> PairModel:
        """The model, if the options can be."""
        if not isinstance(self.shift, int | float | np.number) or not np.isfinite(self.shift):
            raise ValueError(f"shift must be a finite number of log-odds; got {self.shift!r}: 0 is what is expected to be best")
        if self.n_clusters is not None:
            checked_number(self.n_clusters, n, n_groups)
        model = PairModel.packaged() if self.model is None else self.model
        if not isinstance(model, PairModel):
            raise ValueError(f"model must be a PairModel; got {type(model).__name__}: pass what calibrate gives, or nothing")
        return model

    def _pile(self, X: ArrayLike, progress: Progress | None) -> Pile:
        vectors = validate_data(self, X, dtype=[np.float64, np.float32])
        return Pile(prepared(vectors, np.zeros(vectors.shape[1]), cosine=True), progress)


def _by_first(roots: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Labels numbered by first appearance, and the root of each."""
    distinct, first, codes = np.unique(roots, return_index=True, return_inverse=True)
    order = np.argsort(first)
    numbers: NDArray[np.int64] = np.argsort(order)[codes]
    return numbers, distinct[order]


def _expected(
    tree: PairTree,
    probability: NDArray[np.float64],
    cut: Cut,
    groups: NDArray[np.int64],
    precision: NDArray[np.float64],
    error: float,
) -> ExpectedPrecision | None:
    if not len(groups):
        return None
    n_pairs = tree.sizes[groups] * (tree.sizes[groups] - 1)
    value = float(np.clip(n_pairs @ precision / n_pairs.sum(), 1e-4, 1 - 1e-4))
    low, high = (float(expit(logit(value) + sign * error)) for sign in (-1, 1))
    low, high = low if low > _SURE else 0.0, high if high < 1 - _SURE else 1.0  # errors are measured up to there
    total = float(cut.expected[groups].sum())
    apart = (cut.roots[tree.n_leaves :] < 0) @ (probability * tree.n_across)
    return ExpectedPrecision(Estimate(value, low, high), total / max(total + float(apart), 1e-9))
