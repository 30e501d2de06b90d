"""Average linkage on a graph: merge the two clusters whose members are nearest on average, until none are near enough.

The mean squared distance between the members of A and B needs only their means μ and spreads w, the mean squared distance of the
members to their mean:

    link(A, B) = ‖μ_A − μ_B‖² + w_A + w_B

so it is exact for clusters of any size in time O(d), without a matrix of distances. The graph says which clusters may be near;
a merged cluster has the neighbors of both. No merge makes two clusters nearer than the nearer of their parts, so merging along
chains of nearest neighbors gives the same tree as always merging the nearest pair (Murtagh 1983), and pairs of single points that
are too far apart need no edge. For the same reason an edge whose link was longer than the shortest found so far needs no look.
Where the graph lacks edges, a merged cluster can be nearer to a third one than the graph said, and a chain may come back to one
of its own clusters; it then goes on from there to the one that found it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray


class Blobs(NamedTuple):
    """Clusters as average linkage sees them. Merging writes to the lower one of two."""

    means: NDArray[np.float32]  # (m, d)
    spreads: NDArray[np.float64]  # (m,) mean squared distance of the members to the mean
    sizes: NDArray[np.float64]  # (m,) number of points
    heights: NDArray[np.float64]  # (m,) the largest link of its merges


class Graph(NamedTuple):
    """Symmetric lists of neighbors."""

    first: NDArray[np.int64]  # (m + 1,)
    others: NDArray[np.int32]
    bounds: NDArray[np.float32]  # below the links, whatever merges


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def square_between(means: NDArray[np.float32], a: int, b: int) -> float:
    total = np.float32(0)
    for i in range(means.shape[1]):
        total += (means[a, i] - means[b, i]) ** 2
    return np.float64(total)


@njit(cache=True, nogil=True)
def _find(parents: NDArray[np.int32], a: int) -> int:
    while parents[a] != a:
        parents[a] = parents[parents[a]]
        a = parents[a]
    return a


@njit(cache=True, nogil=True)
def _precedes(link: float, a: int, b: int, best: float, c: int, d: int) -> bool:
    """Whether the pair (a, b) comes before (c, d): by link, ties by the lower, then by the higher index."""
    if link != best or d < 0:
        return bool(link < best)
    low, high, other_low, other_high = min(a, b), max(a, b), min(c, d), max(c, d)
    return bool(low < other_low or (low == other_low and high < other_high))


@njit(cache=True, nogil=True)
def merge_near(
    blobs: Blobs, graph: Graph, apart: Graph, limit: float, max_merges: int, merges: NDArray[np.int32], links: NDArray[np.float64]
) -> tuple[int, NDArray[np.int32]]:
    """Merge while the nearest clusters have a link of at most the limit, and max_merges are not reached.

    `apart` lists pairs that must not share a cluster. Fills merges (lower, higher) and their links; returns how many there are,
    and for every old cluster the lowest of those that it is now together with. Reorders the lists of the graph: edges inside
    a cluster, and all but one to the same other, go behind those that still count.
    """
    m = len(blobs.sizes)
    parents, following, last = np.arange(m).astype(np.int32), np.full(m, -1, np.int32), np.arange(m).astype(np.int32)
    has_apart = np.diff(apart.first) > 0
    seen, tick, n_merges = np.full(m, -1, np.int64), 0, 0
    chain, n_chain = np.empty(m + 1, np.int32), 0
    place, reached = np.full(m, -1, np.int32), np.empty(m + 1)  # in the chain, and the link from the one before
    edges, ends = np.empty(m, np.int64), graph.first[1:].copy()
    for start in range(m):
        if parents[start] != start:
            continue
        chain[0], n_chain, place[start] = start, 1, 0
        while n_chain > 0 and n_merges < max_merges:
            a = chain[n_chain - 1]
            if has_apart[a]:
                member = a
                while member >= 0:
                    for position in range(apart.first[member], apart.first[member + 1]):
                        b = _find(parents, apart.others[position])
                        seen[b], edges[b] = tick, -1
                    member = following[member]
            near, link = -1, limit
            if n_chain > 1:
                near, link = int(chain[n_chain - 2]), float(reached[n_chain - 1])
            member = a
            while member >= 0:
                position = graph.first[member]
                while position < ends[member]:
                    if graph.bounds[position] > link:
                        position += 1
                        continue
                    b = _find(parents, graph.others[position])
                    if b == a or seen[b] == tick:
                        if b != a and edges[b] >= 0:
                            graph.bounds[edges[b]] = min(graph.bounds[edges[b]], graph.bounds[position])
                        ends[member] -= 1
                        _swap(graph, position, ends[member])
                        continue
                    seen[b], edges[b] = tick, position
                    position += 1
                    spread = blobs.spreads[a] + blobs.spreads[b]
                    if spread <= link:
                        found = spread + square_between(blobs.means, a, b)
                        if found <= link and (near < 0 or _precedes(found, a, b, link, a, near)):
                            near, link = b, found
                member = following[member]
            tick += 1
            if near < 0:
                n_chain -= 1
                place[a] = -1
            elif n_chain > 1 and chain[n_chain - 2] == near:
                n_chain -= 2
                place[a] = place[near] = -1
                low, high = min(a, near), max(a, near)
                _join(blobs, low, high, link)
                merges[n_merges, 0], merges[n_merges, 1], links[n_merges] = low, high, blobs.heights[low]
                n_merges += 1
                parents[high], following[last[low]], last[low] = low, high, last[high]
                has_apart[low] = has_apart[low] or has_apart[high]
                if n_chain == 0:
                    chain[0], n_chain, place[low] = low, 1, 0
            else:
                next_one = near
                if place[near] >= 0:  # back to one that did not know how near this one is: next, they merge
                    while chain[n_chain - 1] != near:
                        n_chain -= 1
                        place[chain[n_chain]] = -1
                    next_one = a
                chain[n_chain], reached[n_chain], place[next_one] = next_one, link, n_chain
                n_chain += 1
    for a in range(m):
        parents[a] = _find(parents, a)
    return n_merges, parents


@njit(cache=True, nogil=True)
def _swap(graph: Graph, a: int, b: int) -> None:
    graph.others[a], graph.others[b] = graph.others[b], graph.others[a]
    graph.bounds[a], graph.bounds[b] = graph.bounds[b], graph.bounds[a]


@njit(cache=True, nogil=True)
def _join(blobs: Blobs, low: int, high: int, link: float) -> None:
    size = blobs.sizes[low] + blobs.sizes[high]
    share = blobs.sizes[high] / size
    between = square_between(blobs.means, low, high)
    blobs.spreads[low] += share * (blobs.spreads[high] - blobs.spreads[low]) + share * (1 - share) * between
    for i in range(blobs.means.shape[1]):
        blobs.means[low, i] += np.float32(share * (blobs.means[high, i] - blobs.means[low, i]))
    blobs.sizes[low] = size
    blobs.heights[low] = max(link, blobs.heights[low], blobs.heights[high])


@njit(cache=True, nogil=True)
def symmetric_lists(
    rows: NDArray[np.int32], columns: NDArray[np.int32], bounds: NDArray[np.float32], limit: float, m: int
) -> Graph:
    """Both directions of every pair within the limit; pairs that are given twice are there twice, loops are not."""
    first = np.zeros(m + 1, np.int64)
    for k in range(len(rows)):
        if bounds[k] <= limit and rows[k] != columns[k]:
            first[rows[k] + 1] += 1
            first[columns[k] + 1] += 1
    first = np.cumsum(first)
    others, below, ends = np.empty(first[m], np.int32), np.empty(first[m], np.float32), first[:-1].copy()
    for k in range(len(rows)):
        a, b = rows[k], columns[k]
        if bounds[k] <= limit and a != b:
            others[ends[a]], others[ends[b]] = b, a
            below[ends[a]] = below[ends[b]] = bounds[k]
            ends[a] += 1
            ends[b] += 1
    return Graph(first, others, below)


@njit(cache=True, nogil=True)
def all_pairs(products: NDArray[np.float32], squares: NDArray[np.float32], slack: float, limit: float) -> Graph:
    """The pairs with squares[a] + squares[b] − 2·products[a, b] − slack within the limit."""
    m = len(squares)
    first = np.zeros(m + 1, np.int64)
    for a in range(m):
        for b in range(m):
            if squares[a] + squares[b] - 2 * products[a, b] - slack <= limit and a != b:
                first[a + 1] += 1
    first = np.cumsum(first)
    others, below, end = np.empty(first[m], np.int32), np.empty(first[m], np.float32), 0
    for a in range(m):
        for b in range(m):
            bound = squares[a] + squares[b] - 2 * products[a, b] - slack
            if bound <= limit and a != b:
                others[end], below[end] = b, bound
                end += 1
    return Graph(first, others, below)


@njit(cache=True, nogil=True)
def contracted(graph: Graph, position: NDArray[np.int64], m: int) -> Graph:
    """The graph of the clusters that its nodes are now in; every pair once in each direction, with the lowest bound."""
    starts = np.zeros(m + 1, np.int64)
    for node in range(len(position)):
        starts[position[node] + 1] += 1
    starts = np.cumsum(starts)
    members, ends = np.empty(len(position), np.int64), starts[:-1].copy()
    for node in range(len(position)):
        members[ends[position[node]]] = node
        ends[position[node]] += 1
    first, others, end = np.zeros(m + 1, np.int64), np.empty(len(graph.others), np.int32), 0
    bounds, seen = np.empty(len(graph.others), np.float32), np.full(m, -1, np.int64)  # seen: where in the list of the cluster
    for cluster in range(m):
        for node in members[starts[cluster] : starts[cluster + 1]]:
            for place in range(graph.first[node], graph.first[node + 1]):
                other = position[graph.others[place]]
                if other == cluster:
                    continue
                if seen[other] < first[cluster]:
                    seen[other] = end
                    others[end], bounds[end] = other, graph.bounds[place]
                    end += 1
                else:
                    bounds[seen[other]] = min(bounds[seen[other]], graph.bounds[place])
        first[cluster + 1] = end
    return Graph(first, others[:end].copy(), bounds[:end].copy())


@njit(cache=True, nogil=True)
def persistence(sizes: NDArray[np.float64], merges: NDArray[np.int64], heights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Σ size × (1 − its last height / its next) over the clusters, alone and the last ones 0, after 0, 1, … of these merges.

    `sizes` (n,) are those of the clusters before the first merge, at one of their points each.
    """
    sizes, parents, change = sizes.copy(), np.arange(len(sizes)).astype(np.int32), np.zeros(len(merges) + 2)
    born, since = np.zeros(len(sizes)), np.zeros(len(sizes), np.int64)
    for i in range(len(merges)):
        a, b = _find(parents, merges[i, 0]), _find(parents, merges[i, 1])
        for cluster in (a, b):
            if (since[cluster] > 0 or sizes[cluster] > 1) and heights[i] > 0:
                value = sizes[cluster] * (1 - born[cluster] / heights[i])
                change[since[cluster]] += value
                change[i + 1] -= value
        parents[b], born[a], since[a] = a, heights[i], i + 1
        sizes[a] += sizes[b]
    return np.cumsum(change)[:-1]


@njit(cache=True, nogil=True)
def merged_labels(
    first: NDArray[np.int64], merges: NDArray[np.int64], links: NDArray[np.float64], limit: float
) -> NDArray[np.int64]:
    """The clusters after all merges with a link of at most the limit, numbered by their first point. (n,)

    `first` (n,) is the first of the points that a point is together with from the start.
    """
    n = len(first)
    parents, labels, n_clusters = np.arange(n).astype(np.int32), np.empty(n, np.int64), 0
    for i in range(n + len(merges)):
        if i >= n and links[i - n] > limit:
            continue
        a, b = (i, first[i]) if i < n else (merges[i - n, 0], merges[i - n, 1])
        low, high = _find(parents, a), _find(parents, b)
        parents[max(low, high)] = min(low, high)
    for i in range(n):
        root = _find(parents, i)
        if root == i:
            labels[i] = n_clusters
            n_clusters += 1
        else:
            labels[i] = labels[root]
    return labels
