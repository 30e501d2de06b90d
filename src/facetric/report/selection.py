"""Which images the sheets show: the worst queries, the class pairs most confused, the medoid of each cluster."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ConfusedPair:
    """Two classes that find each other: how often, and the single confusions, nearest first."""

    first: int  # the labels, first < second
    second: int
    n_confusions: int  # queries of either class whose nearest image is of the other
    n_queries: int  # images of the two classes
    examples: tuple[tuple[int, int], ...]  # (query, its nearest image)


def worst_queries(
    neighbors: NDArray[np.int64], labels: NDArray[np.integer], *, n_queries: int, one_per_class: bool = True
) -> NDArray[np.int64]:
    """Queries with the worst lists of neighbors (n, k), worst first; at most one of each class by default.

    First those without any neighbor of their class, then those with the fewest; ties go to the longest run of wrong images at
    the top, then to the lowest image id. Images that are alone in their class are left out.
    """
    right = labels[neighbors] == labels[:, None]  # (n, k)
    _, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    wrong_at_top = np.where(right.any(axis=1), right.argmax(axis=1), right.shape[1])
    possible = np.minimum(sizes[codes] - 1, right.shape[1])
    precision = right.sum(axis=1) / np.maximum(possible, 1)
    order = np.lexsort((np.arange(len(labels)), -wrong_at_top, precision))
    order = order[(possible[order] > 0) & (precision[order] < 1)]
    if one_per_class:
        order = order[np.sort(np.unique(codes[order], return_index=True)[1])]
    chosen: NDArray[np.int64] = order[:n_queries].astype(np.int64)
    return chosen


def confused_pairs(
    neighbors: NDArray[np.int64],
    distances: NDArray[np.floating],
    labels: NDArray[np.integer],
    *,
    n_pairs: int,
    n_examples: int = 4,
) -> list[ConfusedPair]:
    """The pairs of classes whose images have each other as nearest image most often; ties by label.

    `neighbors` and `distances` are (n, k) with k ≥ 1; only the nearest counts.
    """
    nearest = neighbors[:, 0]
    queries = np.flatnonzero(labels != labels[nearest])
    if len(queries) == 0:
        return []
    values, sizes = np.unique(labels, return_counts=True)
    size_of = dict(zip(values.tolist(), sizes.tolist(), strict=True))
    both = np.sort(np.stack([labels[queries], labels[nearest[queries]]], axis=1), axis=1)  # (n_wrong, 2)
    pairs, pair_of, counts = np.unique(both, axis=0, return_inverse=True, return_counts=True)
    pair_of = pair_of.reshape(-1)
    found = []
    for pair in np.argsort(-counts, kind="stable")[:n_pairs]:
        own = queries[pair_of == pair]
        own = own[np.argsort(distances[own, 0], kind="stable")][:n_examples]
        first, second = pairs[pair].tolist()
        examples = tuple((int(query), int(nearest[query])) for query in own)
        found.append(ConfusedPair(first, second, int(counts[pair]), size_of[first] + size_of[second], examples))
    return found


def cluster_medoids(vectors: NDArray[np.floating], assignment: NDArray[np.integer]) -> dict[int, int]:
    """For each cluster the member with the least sum of distances to the others, the medoid of F; ties to the lowest id."""
    medoids = {}
    for cluster in np.unique(assignment).tolist():
        members = np.flatnonzero(assignment == cluster)
        own = vectors[members].astype(np.float64)
        own -= own.mean(axis=0)
        squares = np.einsum("nd,nd->n", own, own)
        sums = np.zeros(len(members))
        for start in range(0, len(members), 1024):  # blocks, so that a cluster of 60,000 fits in memory
            block = slice(start, start + 1024)
            squared = squares[block, None] + squares - 2 * own[block] @ own.T
            sums[block] = np.sqrt(np.maximum(squared, 0.0)).sum(axis=1)
        medoids[cluster] = int(members[sums.argmin()])
    return medoids
