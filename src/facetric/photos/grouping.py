"""Vectors to groups that keep to what was decided, how sure each group is, and the questions worth asking next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array  # type: ignore[import-untyped]

from facetric.clustering import ExpectedPrecision, PairLinkage, PairModel
from facetric.embedder import Embedder
from facetric.photos.decisions import Constraints
from facetric.progress import Progress
from facetric.text import counted

_STEP = 0.7  # log-odds that "finer" and "coarser" take


@dataclass(frozen=True, eq=False)
class Grouping:
    """The groups of n points, the largest first."""

    labels: NDArray[np.int64]  # (n,) −1 for rejected points
    medoids: NDArray[np.int64]  # (n_groups,) the member nearest to the mean of each group
    precision: NDArray[np.float64]  # (n_groups,) expected; NaN for a point that is alone
    ambiguity: NDArray[np.float64]  # (n,)
    names: Mapping[int, str]  # of groups that have one
    questions: NDArray[np.int64]  # (n_questions, 2) points: are the two of one group? The most useful first
    expected: ExpectedPrecision | None  # of all groups together


def clusterer_of(
    embedder: Embedder, n_clusters: int | None, finer: int, named: Mapping[str, NDArray[np.float32]] | None = None
) -> tuple[PairLinkage, str]:
    """What groups the vectors of this model, so many steps finer than it expects to be best; and what taught it, in words.

    `named`: vectors of photos by the name that people gave to their group; they teach it, too.
    """
    if n_clusters is not None and finer:
        raise ValueError("a number of groups is neither fine nor coarse: pass one of n_clusters=, finer= and coarser=")
    how, model = f"learned from {embedder.fitted_to or 'other kinds of photos'}", embedder.pair_model
    if named:
        labels = np.repeat(list(named), [len(vectors) for vectors in named.values()])
        model = (model or PairModel.packaged()).fit(np.concatenate(list(named.values())), labels)
        how += f" and from {counted(len(named), 'name')} that you gave"
    found = PairLinkage(model, shift=_STEP * finer, n_clusters=n_clusters)
    return found, f"model: {embedder.name}; which photos belong together was {how}"


def grouped(
    vectors: NDArray[np.float32], clusterer: PairLinkage, constraints: Constraints, *, progress: Progress | None = None
) -> Grouping:
    """Cluster the points (n, d) that were not rejected, and say where a person should look."""
    used = np.array([i for i in range(len(vectors)) if i not in constraints.rejected], dtype=np.int64)
    labels, ambiguity = np.full(len(vectors), -1), np.zeros(len(vectors))
    if not len(used):
        nothing = np.empty(0)
        return Grouping(labels, nothing.astype(np.int64), nothing, ambiguity, {}, np.empty((0, 2), dtype=np.int64), None)
    place = {point: row for row, point in enumerate(used.tolist())}
    must, cannot = ([(place[a], place[b]) for a, b in pairs] for pairs in (constraints.must_link, constraints.cannot_link))
    clusterer.fit(vectors[used], must_link=must, cannot_link=cannot, progress=progress)
    order = _largest_first(clusterer.labels_)
    labels[used], ambiguity[used] = np.argsort(order)[clusterer.labels_], clusterer.ambiguity_
    names = {int(labels[point]): name for point, name in constraints.names.items()}
    medoids, precision = _medoids(vectors, labels), clusterer.precision_[order]
    return Grouping(labels, medoids, precision, ambiguity, names, used[clusterer.questions_], clusterer.expected_)


def _largest_first(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The labels by the size of their groups; ties by the first point."""
    _, first, sizes = np.unique(labels, return_index=True, return_counts=True)
    return np.lexsort((first, -sizes))


def _medoids(vectors: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The member of every group that is nearest to its mean."""
    rows = np.flatnonzero(labels >= 0)
    own, n_groups = labels[rows], int(labels.max()) + 1
    sizes = np.bincount(own, minlength=n_groups)
    means = coo_array((1 / sizes[own], (own, np.arange(len(rows)))), shape=(n_groups, len(rows))).tocsr() @ vectors[rows].astype(
        float
    )
    order = np.lexsort((np.square(vectors[rows] - means[own]).sum(axis=1), own))
    return rows[order[np.searchsorted(own[order], np.arange(n_groups))]]
