"""Every point's two nearest medoids: g(S), and where each point would go without its medoid.

A medoid is nearest to itself, whatever else lies in the same place. Of equal distances the first position in S wins.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.solver.distances import Distances
from facetric.solver.kernels import inner_kernel
from facetric.solver.problem import ClusteringProblem
from facetric.solver.threads import Threads

_BLOCK = np.uint64(64)  # points that are looked at together; unsigned indices need no check for a sign
OWN = -1.0  # a medoid's distance to itself for the purpose of ranking: nearer than any duplicate
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
    threads.run(partial(_rank_piece, problem.from_medoid, medoids, nearest), m, alone=m * len(medoids) < _LONG_RANKING)
    return nearest


def _rank_piece(D: Distances, medoids: NDArray[np.int64], nearest: Nearest, thread: int, first: int, last: int) -> None:
    _rank_points(D, medoids, nearest, first, last)


@njit(cache=True, nogil=True)
def _rank_points(D: Distances, medoids: NDArray[np.int64], nearest: Nearest, start: int, stop: int) -> None:
    first, first_distance = nearest.first[start:stop], nearest.first_distance[start:stop]
    second, second_distance = nearest.second[start:stop], nearest.second_distance[start:stop]
    for k in range(len(medoids)):
        distance = D[medoids[k], start:stop]
        own = medoids[k] - start
        if 0 <= own < stop - start:
            distance = distance.copy()
            distance[own] = OWN
        for i in range(len(distance)):  # without branches: several points in one instruction
            d = distance[i]
            nearer, near = d < first_distance[i], d < second_distance[i]
            second[i] = first[i] if nearer else (np.uint32(k) if near else second[i])
            second_distance[i] = first_distance[i] if nearer else (d if near else second_distance[i])
            first[i] = np.uint32(k) if nearer else first[i]
            first_distance[i] = d if nearer else first_distance[i]


@inner_kernel()
def rank_point(distance: Distances, medoids: NDArray[np.int64], nearest: Nearest, i: int) -> None:
    """Rank the medoids of point i anew, by its distances to all points."""
    first, second = 0, 0
    first_distance, second_distance = np.inf, np.inf
    for k in range(len(medoids)):
        d = OWN if medoids[k] == i else distance[medoids[k]]
        if d < first_distance:
            second, second_distance = first, first_distance
            first, first_distance = k, d
        elif d < second_distance:
            second, second_distance = k, d
    nearest.first[i], nearest.first_distance[i] = first, first_distance
    nearest.second[i], nearest.second_distance[i] = second, second_distance


@inner_kernel()
def find_within(distance: Distances, limit: Distances, found: NDArray[np.uint32]) -> int:
    """The points i with distance[i] ≤ limit[i], ascending; how many they are."""
    n_found, start, end = np.uint64(0), np.uint64(0), np.uint64(len(distance))
    while start < end:
        stop = min(start + _BLOCK, end)
        n_here = 0
        for i in range(start, stop):  # several points in one instruction
            n_here += distance[i] <= limit[i]
        if n_here > 0:  # rarely, when the limits are near
            for i in range(start, stop):  # without a branch, which would often be mispredicted
                found[n_found] = i
                n_found += np.uint64(distance[i] <= limit[i])
        start = stop
    return np.int64(n_found)


@inner_kernel()
def find_equal(clusters: NDArray[np.uint32], k: int, found: NDArray[np.uint32]) -> int:
    """The points of cluster k, ascending; how many they are."""
    wanted = np.uint32(k)
    n_found, start, end = np.uint64(0), np.uint64(0), np.uint64(len(clusters))
    while start < end:
        stop = min(start + _BLOCK, end)
        n_here = 0
        for i in range(start, stop):
            n_here += clusters[i] == wanted
        if n_here > 0:
            for i in range(start, stop):
                found[n_found] = i
                n_found += np.uint64(clusters[i] == wanted)
        start = stop
    return np.int64(n_found)
