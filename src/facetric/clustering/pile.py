"""A pile of vectors, what is near to what in it, and the features of a pair of them: every number is relative to the pile.

No feature is a similarity as it is: what "similar" means differs from network to network and from birds to cereal boxes. So what
is learned from these features on labeled classes carries over to other kinds of photos and to other networks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array  # type: ignore[import-untyped]
from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]

from facetric.clustering.knn import COSINE, in_blocks, neighbor_graph
from facetric.machine import numba_threads
from facetric.metrics import unit_rows
from facetric.progress import Progress

N_NEIGHBORS = 40
_SHARED, _AVERAGED, _NEAREST = (5, 10, 20, 40), (2, 5, 10), (1, 3, 10, 30)  # lengths of neighbor lists
_DENSE = 5  # neighbors that tell how dense it is around a photo
_N_REFERENCE = 2000  # vectors whose similarities tell those of the pile
_N_ABSENT = 2000  # pairs that stand for all that are in no list
PAIR_FEATURES = (
    "cosine", "cosine_less_means", "rank_lower", "rank_higher", *(f"shared_{m}" for m in _SHARED),
    *(f"averaged_{m}" for m in _AVERAGED), "density_lower", "density_higher", *(f"nearest_{m}" for m in _NEAREST),
)  # fmt: skip


class Pairs(NamedTuple):
    """Pairs of rows, first < second."""

    first: NDArray[np.int32]
    second: NDArray[np.int32]


class Pile:
    """Unit vectors and the lists of their nearest neighbors, at most `N_NEIGHBORS` long."""

    def __init__(self, vectors: ArrayLike, progress: Progress | None = None) -> None:
        self.vectors = unit_rows(np.asarray(vectors, dtype=np.float32))  # (n, d)
        n = len(self.vectors)
        graph = neighbor_graph(self.vectors, N_NEIGHBORS, COSINE, progress=progress)
        k = min(N_NEIGHBORS, n - 1)
        self.neighbors = np.full((n, k), -1, dtype=np.int32)  # the nearest first; -1 where a large pile's search found fewer
        self.similarities = np.full((n, k), -1.0, dtype=np.float32)
        _sorted_lists(graph.indptr, graph.indices, graph.data, self.neighbors, self.similarities)

    def __len__(self) -> int:
        return len(self.vectors)

    def listed(self) -> Pairs:
        """The pairs of which one is among the neighbors of the other, in order: of 41 vectors or fewer all pairs."""
        n, k = self.neighbors.shape
        rows, others = np.repeat(np.arange(n), k), self.neighbors.ravel().astype(np.int64)
        rows, others = rows[others >= 0], others[others >= 0]
        codes = np.unique(np.minimum(rows, others) * n + np.maximum(rows, others))
        return Pairs((codes // n).astype(np.int32), (codes % n).astype(np.int32))

    def absent(self, listed: Pairs) -> Pairs:
        """Some pairs that are in no list, or all if there are few: the same ones for the same number of vectors and lists."""
        n = len(self)
        if n * (n - 1) // 2 <= max(2 * _N_ABSENT, 2 * len(listed.first)):
            first, second = np.triu_indices(n, 1)
        else:
            rng = np.random.default_rng(n)
            first, second = rng.integers(0, n, (2, 2 * _N_ABSENT))
            first, second = np.minimum(first, second), np.maximum(first, second)
        codes = first.astype(np.int64) * n + second
        known = listed.first.astype(np.int64) * n + listed.second
        place = np.minimum(np.searchsorted(known, codes), max(len(known) - 1, 0))
        rest = np.flatnonzero((first != second) & (known[place] != codes)) if len(known) else np.flatnonzero(first != second)
        rest = rest[np.unique(np.linspace(0, len(rest) - 1, min(len(rest), _N_ABSENT)).astype(np.int64))]
        return Pairs(first[rest].astype(np.int32), second[rest].astype(np.int32))

    def bridges(self, pairs: Pairs) -> Pairs:
        """Pairs that join what these leave in parts: the points in the middle of parts that are near each other."""
        n, found = len(self), [pairs]
        while True:
            first, second = (np.concatenate(ends) for ends in zip(*found, strict=True))
            parts = connected_components(coo_array((np.ones(len(first)), (first, second)), shape=(n, n)), directed=False)[1]
            if parts.max() == 0:
                return Pairs(first[len(pairs.first) :], second[len(pairs.first) :])
            members = coo_array((np.ones(n), (parts, np.arange(n))), shape=(parts.max() + 1, n)).tocsr()
            means = unit_rows(members @ self.vectors)
            order = np.lexsort((-np.einsum("nd,nd->n", self.vectors, means[parts]), parts))
            middles = order[np.searchsorted(parts[order], np.arange(len(means)))]
            ends = np.sort(middles[np.column_stack(Pile(means).listed())], axis=1).astype(np.int32)
            found.append(Pairs(ends[:, 0], ends[:, 1]))

    def features(self, pairs: Pairs) -> NDArray[np.float32]:
        """(n_pairs, 17), named by `PAIR_FEATURES`."""
        x, k = self.vectors, self.neighbors.shape[1]
        n, (first, second) = len(x), pairs
        found = np.empty((len(first), len(PAIR_FEATURES)), dtype=np.float32)
        mean, spread = _scale(x)
        photo_means = ((x @ x.sum(axis=0, dtype=np.float64).astype(np.float32) - 1) / max(n - 1, 1)).astype(np.float32)
        cosine = _products(x, pairs)
        found[:, 0] = (cosine - mean) / spread
        found[:, 1] = (cosine - (photo_means[first] + photo_means[second]) / 2) / spread
        lengths = np.minimum(_SHARED, k)
        in_blocks(
            lambda rows: _overlaps(self.neighbors, first[rows], second[rows], lengths, found[rows, 2:8]),
            len(first), max(1, -(-len(first) // (4 * numba_threads()))),
        )  # fmt: skip
        for column, m in enumerate(_AVERAGED, start=8):
            y = unit_rows(_averaged(x, self.neighbors[:, :m]))
            own_mean, own_spread = _scale(y)
            found[:, column] = (_products(y, pairs) - own_mean) / own_spread
        density = (self.similarities[:, :_DENSE].mean(axis=1) - photo_means) / spread
        found[:, 11] = np.minimum(density[first], density[second])
        found[:, 12] = np.maximum(density[first], density[second])
        for column, m in enumerate(_NEAREST, start=13):
            found[:, column] = ((self.similarities[:, min(m, k) - 1] - mean) / spread).mean()
        return found


def _scale(x: NDArray[np.float32]) -> tuple[float, float]:
    """Mean and spread of the similarities of a sample."""
    sample = x[np.linspace(0, len(x) - 1, min(len(x), _N_REFERENCE)).astype(np.int64)]
    values = (sample @ sample.T)[np.triu_indices(len(sample), 1)]
    return float(values.mean()), float(values.std()) + 1e-6


def _products(x: NDArray[np.float32], pairs: Pairs) -> NDArray[np.float32]:
    found = np.empty(len(pairs.first), dtype=np.float32)
    in_blocks(lambda rows: _dots(x, pairs.first[rows], pairs.second[rows], found[rows]), len(found), 1 << 16)
    return found


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _dots(x: NDArray[np.float32], first: NDArray[np.int32], second: NDArray[np.int32], found: NDArray[np.float32]) -> None:
    for i in range(len(first)):
        total, a, b = np.float32(0), x[first[i]], x[second[i]]
        for j in range(len(a)):
            total += a[j] * b[j]
        found[i] = total


@njit(cache=True, nogil=True)
def _sorted_lists(
    starts: NDArray[np.int32], others: NDArray[np.int32], costs: NDArray[np.float32], lists: NDArray[np.int32],
    similarities: NDArray[np.float32],
) -> None:  # fmt: skip
    """The nearest first, ties by row."""
    for i in range(len(lists)):
        own, paid = others[starts[i] : starts[i + 1]], costs[starts[i] : starts[i + 1]]
        by_row = np.argsort(own, kind="mergesort")
        order = by_row[np.argsort(paid[by_row], kind="mergesort")]
        for j in range(len(order)):
            lists[i, j], similarities[i, j] = own[order[j]], np.float32(1) - paid[order[j]]


@njit(cache=True, nogil=True)
def _averaged(x: NDArray[np.float32], neighbors: NDArray[np.int32]) -> NDArray[np.float32]:
    """Every vector plus its neighbors."""
    found = x.copy()
    for i in range(len(x)):
        for j in neighbors[i]:
            if j >= 0:
                for c in range(x.shape[1]):
                    found[i, c] += x[j, c]
    return found


@njit(cache=True, nogil=True)
def _overlaps(
    neighbors: NDArray[np.int32], first: NDArray[np.int32], second: NDArray[np.int32], lengths: NDArray[np.int64],
    found: NDArray[np.float32],
) -> None:  # fmt: skip
    """The logarithms of the lower and the higher rank in each other's lists, and how much of the lists is shared."""
    n, k = neighbors.shape
    ranks = np.full(n, -1, np.int16)  # in the list of `at`, 0 for itself
    counts, at = np.empty(k + 1, np.int64), -1
    for i in range(len(first)):
        a, b = first[i], second[i]
        if a != at:
            if at >= 0:
                ranks[at] = -1
                for j in neighbors[at]:
                    if j >= 0:
                        ranks[j] = -1
            at, ranks[a] = a, 0
            for j in range(k):
                if neighbors[a, j] >= 0:
                    ranks[neighbors[a, j]] = j + 1
        counts[:] = 0
        own, other = int(ranks[b]) if ranks[b] > 0 else k + 1, k + 1
        if ranks[b] >= 0:
            counts[ranks[b]] += 1
        for j in range(k):
            c = neighbors[b, j]
            if c == a:
                other = j + 1
            if c >= 0 and ranks[c] >= 0:
                counts[max(j + 1, int(ranks[c]))] += 1
        found[i, 0], found[i, 1] = np.log(min(own, other)), np.log(max(own, other))
        total, length = 0, 0
        for m in range(len(lengths)):
            while length <= lengths[m]:
                total += counts[length]
                length += 1
            found[i, 2 + m] = total / (lengths[m] + 1)
