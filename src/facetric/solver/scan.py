"""Points found by comparing many of them in one instruction."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from facetric.solver.distances import Distances
from facetric.solver.kernels import Index, inner_kernel

_BLOCK = np.uint64(64)  # unsigned: an index that needs no check for a sign


@inner_kernel()
def find_within(distance: Distances, limit: Distances, found: NDArray[np.uint32]) -> Index:
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
def find_equal(clusters: NDArray[np.uint32], k: Index, found: NDArray[np.uint32]) -> Index:
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
