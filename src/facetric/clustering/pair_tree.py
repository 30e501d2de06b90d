"""Average linkage on the log-odds of pairs, on a sparse graph: pairs that are not listed have the background log-odds.

    link(A, B) = mean of the log-odds over x ∈ A, y ∈ B

The best pair of clusters merges, again and again. A merge with a third cluster can only bring a link nearer to the background,
so an old link is an upper bound, looked at again when it is on top. A list of k neighbors has no room for the whole of a large
cluster: of its pairs only so many count as missing as the lists could hold.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import expit  # type: ignore[import-untyped]

from facetric.clustering.links import Links
from facetric.clustering.pile import N_NEIGHBORS, Pairs

CLIP = 8.0  # log-odds
MERGE_FEATURES = (
    "smaller", "larger", "fraction_of_pile", "inside_lower", "inside_higher", "n_single", "to_parent", "to_parts", "spread",
    "nearest_pair", "farthest_pair", "size_to_expected", "n_photos", "expected_size", "height", "contrast_lower",
    "contrast_higher", "contrast_of_pile", "n_clusters", "fraction_of_clusters", "rank_of_height", "contrast_of_parent",
    "is_root",
)  # fmt: skip
_FLOOR = 0.02  # of the way from the background to the most probable pairs: what is less probable does not merge


@dataclass(frozen=True, eq=False)
class PairTree:
    """Merges, the best first. Its nodes are the leaves, then the merges; a leaf is a point, or those that must_link joins."""

    leaves: NDArray[np.int64]  # (n,) of every point
    sizes: NDArray[np.float64]  # (n_nodes,) points
    parts: NDArray[np.int64]  # (n_merges, 2) nodes
    n_across: NDArray[np.float64]  # (n_merges,) pairs of points across the two parts
    features: NDArray[np.float64]  # (n_merges, 23), named by MERGE_FEATURES

    @property
    def n_leaves(self) -> int:
        return len(self.sizes) - len(self.parts)


def pair_tree(
    pairs: Pairs, log_odds: NDArray[np.float64], background: float, links: Links, *, complete: bool = False
) -> PairTree:
    """The tree of n points of which the listed pairs have these log-odds; `complete`: all that is connected merges in the end."""
    n, leaves = len(links.codes), links.codes
    clipped = np.clip(log_odds, -CLIP, CLIP)
    n_pairs = max(n * (n - 1) / 2, 1.0)
    total, squares = (
        float(v) + (n_pairs - len(clipped)) * background**p for p, v in ((1, clipped.sum()), (2, (clipped**2).sum()))
    )
    mean = total / n_pairs
    deviation = float(np.sqrt(max(squares / n_pairs - mean**2, 0.0)))
    n_top = min(max(n // 2, 5), len(clipped))
    top = float(np.partition(clipped, len(clipped) - n_top)[-n_top:].mean()) if n_top else background  # the most probable pairs
    edges, inside = _edges(pairs, clipped, links)
    sizes = np.bincount(leaves).astype(np.float64)
    floor = -np.inf if complete else background + _FLOOR * max(top - background, 0.0)
    parts, across = _merged(*edges, sizes, background, floor, N_NEIGHBORS)  # (n_merges, 2), (n_merges, 5)
    m, n_leaves = len(parts), len(sizes)
    # heights never above those of the parts; the best merges first, parts before what they are part of
    heights = _falling(parts, across[:, 0].copy(), n_leaves)
    order = np.lexsort((np.arange(m), -heights))
    place = np.concatenate([np.arange(n_leaves), n_leaves + np.argsort(order)])
    parts, across, heights = place[parts[order]], across[order], heights[order]
    probable = expit(clipped)
    expected = np.bincount(pairs.first, probable, n) + np.bincount(pairs.second, probable, n)
    sizes, inner, expected_sums, parents = _summed(
        parts, across, np.concatenate([sizes, np.zeros(m)]), inside, np.bincount(leaves, expected, n_leaves).astype(np.float64)
    )
    left, right = parts.T
    n_across = sizes[left] * sizes[right]
    small, large, both = np.minimum(sizes[left], sizes[right]), np.maximum(sizes[left], sizes[right]), sizes[left] + sizes[right]
    all_heights = np.concatenate([np.full(n_leaves, CLIP), heights])
    own = parents[n_leaves:]
    above = np.where(own >= 0, all_heights[own], background)
    of_left, of_right = (np.where(sizes[part] > 1, inner[part], heights) for part in (left, right))
    low, high = np.minimum(of_left, of_right), np.maximum(of_left, of_right)
    singles, n_left = large == 1, n_leaves - 1 - np.arange(m)
    ranked = np.sort(-clipped)

    def contrast(value: NDArray[np.float64], inner: NDArray[np.float64]) -> NDArray[np.float64]:
        """From 0 at the background to 1 at the inside."""
        return np.clip((value - mean) / np.maximum(inner - mean, 0.25), -0.5, 1.5)

    columns = [
        np.log(small), np.log(large), np.log(both / n), low - heights, high - heights,
        1.0 * (sizes[left] == 1) + (sizes[right] == 1), heights - above,
        np.minimum(all_heights[left], all_heights[right]) - heights, across[:, 1], across[:, 2] - heights, across[:, 3] - heights,
        np.log(both / (1 + (expected_sums[left] + expected_sums[right]) / both)), np.full(m, np.log(n)),
        np.full(m, np.log1p(expected).mean()), (heights - mean) / (deviation + 1e-6),
        contrast(heights, np.where(singles, top, low)), contrast(heights, np.where(singles, top, high)),
        (heights - mean) / max(top - mean, 0.25), np.log(n_left), np.log(n_left / n),
        np.log((np.searchsorted(ranked, -heights) + 1) * 2 / n), contrast(above, low), 1.0 * (own < 0),
    ]  # fmt: skip
    return PairTree(leaves, sizes, parts, n_across, np.column_stack(columns))


class _Edges(NamedTuple):
    """Between leaves: what is known of the listed pairs across the two."""

    first: NDArray[np.int32]
    second: NDArray[np.int32]
    counts: NDArray[np.float32]
    sums: NDArray[np.float64]
    squares: NDArray[np.float32]
    highest: NDArray[np.float32]
    lowest: NDArray[np.float32]
    forbidden: NDArray[np.bool_]


def _edges(pairs: Pairs, log_odds: NDArray[np.float64], links: Links) -> tuple[_Edges, NDArray[np.float64]]:
    """The edges, and the sum of the log-odds inside every leaf."""
    first, second = links.codes[pairs.first], links.codes[pairs.second]
    cannot = links.cannot_between(links.codes)
    is_inside = first == second
    inside = np.bincount(first[is_inside], log_odds[is_inside], links.n_groups).astype(np.float64)
    first, second, values = first[~is_inside], second[~is_inside], log_odds[~is_inside]
    first, second = np.concatenate([first, cannot[:, 0]]), np.concatenate([second, cannot[:, 1]])
    ends = np.minimum(first, second).astype(np.int32), np.maximum(first, second).astype(np.int32)
    counted = np.concatenate([np.ones(len(values), np.float32), np.zeros(len(cannot), np.float32)])
    values = np.concatenate([values, np.zeros(len(cannot))])
    forbidden = counted == 0
    codes = ends[0].astype(np.int64) * links.n_groups + ends[1]
    if links.joins or len(cannot):  # else the pairs are distinct and in order
        distinct, place = np.unique(codes, return_inverse=True)
        m = len(distinct)
        highest, lowest = np.full(m, -np.inf), np.full(m, np.inf)
        np.maximum.at(highest, place[~forbidden], values[~forbidden])
        np.minimum.at(lowest, place[~forbidden], values[~forbidden])
        ends = (distinct // links.n_groups).astype(np.int32), (distinct % links.n_groups).astype(np.int32)
        sums = np.bincount(place, values, m).astype(np.float64), np.bincount(place, values**2, m).astype(np.float64)
        forbidden = np.bincount(place, forbidden, m) > 0
        counted = np.bincount(place, counted, m).astype(np.float32)
    else:
        sums, highest, lowest = (values, values**2), values, values
    squares, high, low = (x.astype(np.float32) for x in (sums[1], highest, lowest))
    return _Edges(*ends, counted, sums[0], squares, high, low, forbidden), inside


@njit(cache=True, nogil=True)
def _link(count: float, total: float, a: float, b: float, background: float, k: float) -> float:
    """The mean log-odds across clusters of a and b points: of their pairs, as many as lists of k neighbors could hold."""
    n_pairs = max(a * b * min(1.0, k / (a + b)), count)
    return (total + (n_pairs - count) * background) / n_pairs


@njit(cache=True, nogil=True)
def _merged(
    first: NDArray[np.int32], second: NDArray[np.int32], counts: NDArray[np.float32], sums: NDArray[np.float64],
    squares: NDArray[np.float32], highest: NDArray[np.float32], lowest: NDArray[np.float32], forbidden: NDArray[np.bool_],
    sizes: NDArray[np.float64], background: float, floor: float, k: float,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:  # fmt: skip
    """The parts of every merge as nodes, in the order of merging, and its link, spread, highest and lowest pair and sum."""
    first, second, counts, sums = first.copy(), second.copy(), counts.copy(), sums.copy()
    squares, highest, lowest, sizes = squares.copy(), highest.copy(), lowest.copy(), sizes.copy()
    n, m = len(sizes), len(first)
    # edge e is the half-edges 2e (in the list of its first cluster) and 2e + 1 (of its second)
    head, degree = np.full(n, -1, np.int32), np.zeros(n, np.int64)
    after, before = np.full(2 * m, -1, np.int32), np.full(2 * m, -1, np.int32)
    queue = [(0.0, np.int32(0)) for _ in range(0)]
    for e in range(m):
        for h, a in ((2 * e, first[e]), (2 * e + 1, second[e])):
            after[h], degree[a] = head[a], degree[a] + 1
            if head[a] >= 0:
                before[head[a]] = h
            head[a] = h
        if not forbidden[e]:
            link = _link(counts[e], sums[e], sizes[first[e]], sizes[second[e]], background, k)
            if link > floor:
                queue.append((-link, np.int32(e)))
    heapq.heapify(queue)
    alive = np.ones(m, np.bool_)
    slot, nodes = np.full(n, -1, np.int32), np.arange(n)
    parts, across, n_merges = np.empty((max(n - 1, 0), 2), np.int64), np.empty((max(n - 1, 0), 5)), 0
    while queue:
        key, e = heapq.heappop(queue)  # type: ignore[assignment]
        if not alive[e] or forbidden[e]:
            continue
        a, b = first[e], second[e]
        link = _link(counts[e], sums[e], sizes[a], sizes[b], background, k)
        if link < -key:
            if link > floor:
                heapq.heappush(queue, (-link, np.int32(e)))
            continue
        if degree[a] < degree[b] or (degree[a] == degree[b] and a > b):
            a, b = b, a
        n_pairs = max(sizes[a] * sizes[b] * min(1.0, k / (sizes[a] + sizes[b])), float(counts[e]))
        missing = n_pairs - counts[e]
        parts[n_merges, 0], parts[n_merges, 1] = min(nodes[a], nodes[b]), max(nodes[a], nodes[b])
        across[n_merges, 0] = link
        across[n_merges, 1] = np.sqrt(max((squares[e] + missing * background**2) / n_pairs - link**2, 0.0))
        across[n_merges, 2] = max(highest[e], background) if missing > 0 else highest[e]
        across[n_merges, 3] = min(lowest[e], background) if missing > 0 else lowest[e]
        across[n_merges, 4] = link * sizes[a] * sizes[b]
        alive[e] = False
        h = head[a]
        while h >= 0:
            slot[second[h >> 1] if (h & 1) == 0 else first[h >> 1]] = h >> 1
            h = after[h]
        h = head[b]
        while h >= 0:
            following, edge = after[h], h >> 1
            c = second[edge] if (h & 1) == 0 else first[edge]
            if c != a:
                into = slot[c]
                if into >= 0:  # both parts have an edge to c
                    counts[into] += counts[edge]
                    sums[into] += sums[edge]
                    squares[into] += squares[edge]
                    highest[into], lowest[into] = max(highest[into], highest[edge]), min(lowest[into], lowest[edge])
                    forbidden[into] |= forbidden[edge]
                    alive[edge] = False
                    other = h ^ 1
                    if before[other] >= 0:
                        after[before[other]] = after[other]
                    else:
                        head[c] = after[other]
                    if after[other] >= 0:
                        before[after[other]] = before[other]
                    degree[c] -= 1
                    # its link may have grown: the queue needs a bound that is above it
                    if not forbidden[into]:
                        grown = _link(counts[into], sums[into], sizes[a] + sizes[b], sizes[c], background, k)
                        if grown > floor:
                            heapq.heappush(queue, (-grown, into))
                else:
                    if (h & 1) == 0:
                        first[edge] = a
                    else:
                        second[edge] = a
                    before[h], after[h] = -1, head[a]
                    if head[a] >= 0:
                        before[head[a]] = h
                    head[a] = h
                    degree[a] += 1
            h = following
        h, kept = head[a], -1  # the edge between the two goes, the slots are emptied
        while h >= 0:
            slot[second[h >> 1] if (h & 1) == 0 else first[h >> 1]] = -1
            if h >> 1 == e:
                kept = h
            h = after[h]
        if kept >= 0:
            if before[kept] >= 0:
                after[before[kept]] = after[kept]
            else:
                head[a] = after[kept]
            if after[kept] >= 0:
                before[after[kept]] = before[kept]
            degree[a] -= 1
        head[b] = -1
        sizes[a] += sizes[b]
        nodes[a] = n + n_merges
        n_merges += 1
    return parts[:n_merges], across[:n_merges]


@njit(cache=True, nogil=True)
def _falling(parts: NDArray[np.int64], heights: NDArray[np.float64], n_leaves: int) -> NDArray[np.float64]:
    for i in range(len(parts)):
        for part in parts[i]:
            if part >= n_leaves:
                heights[i] = min(heights[i], heights[part - n_leaves])
    return heights


@njit(cache=True, nogil=True)
def _summed(
    parts: NDArray[np.int64], across: NDArray[np.float64], sizes: NDArray[np.float64], inside: NDArray[np.float64],
    expected: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:  # fmt: skip
    """Per node: points, mean log-odds inside, expected photos of the same class over its points, and its parent or -1."""
    n_leaves = len(inside)
    sums, wanted = np.zeros(len(sizes)), np.zeros(len(sizes))
    sums[:n_leaves], wanted[:n_leaves] = inside, expected
    parents, inner = np.full(len(sizes), -1), np.zeros(len(sizes))
    for i in range(len(parts)):
        a, b = parts[i]
        node = n_leaves + i
        parents[a] = parents[b] = node
        sizes[node], wanted[node] = sizes[a] + sizes[b], wanted[a] + wanted[b]
        sums[node] = sums[a] + sums[b] + across[i, 4]
    for node in range(len(sizes)):
        inner[node] = sums[node] / max(sizes[node] * (sizes[node] - 1) / 2, 1.0)
    return sizes, inner, wanted, parents
