"""Every point's two nearest medoids: g(S), and where a point would go without its medoid. They follow S as medoids are exchanged.

A medoid is nearest to itself, whatever else lies in the same place. Of equal distances the first position in S wins.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.losses.solver.compiled import Distances, Index, Threads, find_equal, find_within, inner_kernel
from facetric.losses.solver.problem import ClusteringProblem

_OWN = -1.0  # a medoid's distance to itself for the purpose of ranking: nearer than any duplicate
_LONG_RANKING = 1_000_000  # so many distances are worth several threads


class Nearest(NamedTuple):
    """For each point the positions of its nearest and second nearest medoid, and the distances that ranked them. (m,) each."""

    first: NDArray[np.uint32]
    first_distance: Distances
    second: NDArray[np.uint32]
    second_distance: Distances


def nearest_medoids(problem: ClusteringProblem, medoids: NDArray[np.int64], threads: Threads) -> Nearest:
    """With a single medoid the second distance is infinite."""
    m, dtype = problem.n_points, problem.distances.dtype
    nearest = Nearest(np.zeros(m, np.uint32), np.full(m, np.inf, dtype), np.zeros(m, np.uint32), np.full(m, np.inf, dtype))
    threads.run(partial(_rank_points, problem.from_medoid, medoids, nearest), m, alone=m * len(medoids) < _LONG_RANKING)
    return nearest


@njit(cache=True, nogil=True)
def _rank_points(D: Distances, medoids: NDArray[np.int64], nearest: Nearest, start: int, stop: int) -> None:
    first, first_distance = nearest.first[start:stop], nearest.first_distance[start:stop]
    second, second_distance = nearest.second[start:stop], nearest.second_distance[start:stop]
    for k in range(len(medoids)):
        distance = D[medoids[k], start:stop]
        own = medoids[k] - start
        if 0 <= own < stop - start:
            distance = distance.copy()
            distance[own] = _OWN
        for i in range(len(distance)):  # without branches: several points in one instruction
            d = distance[i]
            nearer, near = d < first_distance[i], d < second_distance[i]
            second[i] = first[i] if nearer else (np.uint32(k) if near else second[i])
            second_distance[i] = first_distance[i] if nearer else (d if near else second_distance[i])
            first[i] = np.uint32(k) if nearer else first[i]
            first_distance[i] = d if nearer else first_distance[i]


@inner_kernel()
def remove(nearest: Nearest, k: int, orphans: NDArray[np.uint32]) -> Index:
    """Take medoid k away: for its points the first is now the second. They are the orphans; how many they are."""
    first, first_distance, second, second_distance = nearest
    n_orphans = find_equal(first, k, orphans)
    for i in orphans[:n_orphans]:
        first[i], first_distance[i] = second[i], second_distance[i]
    return n_orphans


@inner_kernel()
def put_back(nearest: Nearest, distance: Distances, medoid: int, k: int, orphans: NDArray[np.uint32]) -> None:
    """Undo `remove` of the medoid k at this distance."""
    for i in orphans:
        nearest.first[i], nearest.first_distance[i] = k, _OWN if i == medoid else distance[i]


@inner_kernel()
def find_won(nearest: Nearest, distance: Distances, medoid: int, k: int, won: NDArray[np.uint32]) -> Index:
    """The points that a new medoid k at this distance wins from all others, itself always; how many they are."""
    first, first_distance = nearest.first, nearest.first_distance
    n_won = 0
    for i in won[: find_within(distance, first_distance, won)]:
        won[n_won] = i
        n_won += _joins(distance[i], first_distance[i], k, first[i]) or i == medoid
    return n_won


@inner_kernel()
def put_in(
    nearest: Nearest,
    distance: Distances,
    by_point: Distances,
    medoids: NDArray[np.int64],
    k: int,
    orphans: NDArray[np.uint32],
    won: NDArray[np.uint32],
) -> None:
    """After `remove` let the new medoid k, at this distance, have the points that it has won."""
    first, first_distance, second, second_distance = nearest
    for i in won:
        second[i], second_distance[i] = first[i], first_distance[i]
        first[i], first_distance[i] = k, _OWN if i == medoids[k] else distance[i]
    for i in orphans:
        if first[i] != k:
            _rank_point(by_point[i], medoids, nearest, i)
    found = np.empty(len(first), np.uint32)
    for i in found[: find_within(distance, second_distance, found)]:
        if first[i] != k and _joins(distance[i], second_distance[i], k, second[i]):
            second[i], second_distance[i] = k, distance[i]
    for i in found[: find_equal(second, k, found)]:
        if distance[i] > second_distance[i]:  # the old medoid was nearer
            _rank_point(by_point[i], medoids, nearest, i)


@njit(cache=True, nogil=True, inline="always")
def _joins(distance: float, rival_distance: float, k: int, rival: int) -> bool:
    return distance < rival_distance or (distance == rival_distance and k < rival)


@inner_kernel()
def _rank_point(distance: Distances, medoids: NDArray[np.int64], nearest: Nearest, i: int) -> None:
    """Rank the medoids of point i anew, by its distances to all points."""
    first, second = 0, 0
    first_distance, second_distance = np.inf, np.inf
    for k in range(len(medoids)):
        d = _OWN if medoids[k] == i else distance[medoids[k]]
        if d < first_distance:
            second, second_distance = first, first_distance
            first, first_distance = k, d
        elif d < second_distance:
            second, second_distance = k, d
    nearest.first[i], nearest.first_distance[i] = first, first_distance
    nearest.second[i], nearest.second_distance[i] = second, second_distance
