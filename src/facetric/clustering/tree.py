"""The tree of average linkage over any number of points, on graphs of nearest neighbors.

A graph of neighbors reaches only so far. When no two clusters that it joins are near enough, their means get a graph of their
own, until such a graph changes nothing. Up to 2,000 clusters it holds all pairs, and the tree is that of all distances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facetric.clustering.kmeans import weighted_means
from facetric.clustering.knn import SQUARED, neighbor_graph
from facetric.clustering.links import Links
from facetric.clustering.merging import (
    Blobs,
    Graph,
    all_pairs,
    contracted,
    merge_near,
    merged_labels,
    persistence,
    symmetric_lists,
)
from facetric.progress import Progress

MAX_ALL_PAIRS = 2000  # clusters; up to here every pair is looked at
_ROUNDING = 1e-5  # of sums in float32, with a margin


@dataclass(frozen=True, eq=False)
class Tree:
    """Merges of n points in the order in which they were found, each with its link: a mean squared distance."""

    joined: NDArray[np.int64]  # (n,) must-linked points share a code
    merges: NDArray[np.int64]  # (n_merges, 2) a point of either part
    links: NDArray[np.float64]  # (n_merges,) never below those of the parts
    neighbors: Graph  # of the points, or of what must_link makes of them, within the limit

    def cut(self, limit: float) -> NDArray[np.int64]:
        """The clusters after all merges with a link of at most the limit, numbered by their first point. (n,)"""
        return self._merged(self.links, limit)

    def after(self, n_merges: int) -> NDArray[np.int64]:
        """The clusters after so many merges, the nearest first; equal ones in the order in which they were found. (n,)"""
        return self._merged(np.argsort(np.argsort(self.links, kind="stable")).astype(np.float64), n_merges - 1)

    def most_persistent(self, weights: NDArray[np.float64]) -> int:
        """After how many merges clusters are far from merging again, by the mean over points; equal points have merged."""
        order, sizes = np.argsort(self.links, kind="stable"), np.zeros(len(weights))
        sizes[np.unique(self.joined, return_index=True)[1]] = np.bincount(self.joined, weights)
        n_equal = int((self.links == 0).sum())
        return n_equal + int(persistence(sizes, self.merges[order], np.sqrt(self.links[order]))[n_equal:].argmax())

    def _merged(self, links: NDArray[np.float64], limit: float) -> NDArray[np.int64]:
        first = np.unique(self.joined, return_index=True)[1]
        return merged_labels(first[self.joined], self.merges, links, float(limit))


def average_linkage(
    vectors: NDArray[np.float32],
    limit: float,
    *,
    n_neighbors: int,
    links: Links,
    weights: NDArray[np.float64] | None = None,
    progress: Progress | None = None,
) -> Tree:
    """All merges with a link of at most the limit; `weights` (n,) say how often a point counts."""
    n = len(vectors)
    codes = links.codes.copy()
    blobs = summaries(vectors, np.ones(n) if weights is None else weights, codes)
    points = np.unique(codes, return_index=True)[1]  # a point of every cluster
    merges, found = [np.empty((0, 2), dtype=np.int64)], [np.empty(0)]
    near = _near(blobs, limit, n_neighbors, progress)
    neighbors = _of_points(near, codes, points) if links.joins else near
    fresh = True  # the graph is one of nearest neighbors, not what is left of one
    while len(points) > 1:
        m = len(points)
        pairs, values = np.empty((m, 2), dtype=np.int32), np.empty(m)
        cannot = links.cannot_between(codes).astype(np.int32)
        apart = symmetric_lists(cannot[:, 0], cannot[:, 1], np.zeros(len(cannot), dtype=np.float32), 0.0, m)
        n_merges, parents = merge_near(blobs, near, apart, limit, max(m // 2, 1), pairs, values)
        if n_merges == 0 and fresh:
            break
        merges.append(points[pairs[:n_merges]])
        found.append(values[:n_merges])
        kept = np.flatnonzero(parents == np.arange(m))
        position = np.searchsorted(kept, parents)
        codes = position[codes]
        blobs, points = Blobs._make(array[kept] for array in blobs), points[kept]
        if progress is not None:
            progress("Merging", n - len(points), n)
        if fresh := n_merges < max(m // 2, 1):
            near = _near(blobs, limit, n_neighbors, None)
        else:
            near = contracted(near, position, len(kept))
    return Tree(links.codes, np.concatenate(merges), np.concatenate(found), neighbors)


def summaries(vectors: NDArray[np.float32], weights: NDArray[np.float64], codes: NDArray[np.int64]) -> Blobs:
    """Mean, spread and size of every cluster."""
    sizes = np.bincount(codes, weights).astype(np.float64)
    if len(sizes) == len(codes):
        return Blobs(vectors.copy(), np.zeros(len(sizes)), sizes, np.zeros(len(sizes)))
    means = weighted_means(vectors, weights, codes, len(sizes))
    squares = np.square(vectors - means[codes], dtype=np.float64).sum(axis=1)
    return Blobs(means, np.bincount(codes, weights * squares) / sizes, sizes, np.zeros(len(sizes)))


def _near(blobs: Blobs, limit: float, n_neighbors: int, progress: Progress | None) -> Graph:
    """Which clusters are within the limit: of all when they are few, else of each one's nearest. Merging looks again."""
    m = len(blobs.sizes)
    if m > max(MAX_ALL_PAIRS, n_neighbors + 1):
        graph = neighbor_graph(blobs.means, n_neighbors, SQUARED, offsets=blobs.spreads, progress=progress)
        rows = np.repeat(np.arange(m, dtype=np.int32), np.diff(graph.indptr))
        links = graph.data + blobs.spreads[rows] + blobs.spreads[graph.indices]
        bounds = np.multiply(links, 1 - _ROUNDING, dtype=np.float32)
        return symmetric_lists(rows, graph.indices.astype(np.int32, copy=False), bounds, limit, m)
    means = blobs.means - blobs.means.mean(axis=0)
    squares = np.einsum("nd,nd->n", means, means) + blobs.spreads.astype(np.float32)
    return all_pairs(means @ means.T, squares, _ROUNDING * float(squares.max(initial=0.0)), limit)


def _of_points(near: Graph, codes: NDArray[np.int64], points: NDArray[np.int64]) -> Graph:
    """The lists of groups as lists of their points."""
    counts = np.diff(near.first)[codes]
    first = np.concatenate([[0], np.cumsum(counts)])
    places = np.arange(first[-1]) - np.repeat(first[:-1] - near.first[codes], counts)
    return Graph(first, points[near.others[places]].astype(np.int32), near.bounds[places])
