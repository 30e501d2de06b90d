"""What the solver's kernels have in common: how they are compiled, how a long loop is spread over threads, and two scans."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self, TypeVar

import numba
import numpy as np
from numba import njit
from numpy.typing import NDArray

Distances = NDArray[np.floating]  # float32 or float64
Index = int | np.integer[Any]  # inside kernels integers have the width and sign that they were given

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def inner_kernel(*, fastmath: frozenset[str] = frozenset()) -> Callable[[F], F]:
    """Compile a kernel that only kernels call, without the wrapper for calls from Python, which takes long to compile."""
    compiled: Callable[[F], F] = njit(  # type: ignore[call-overload]
        cache=True, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath=set(fastmath)
    )
    return compiled


class Threads:
    """Runs a loop in pieces on several threads, of which the caller's is one. The others start with the first long loop.

    Plain threads, because the kernels release the GIL: a second OpenMP runtime next to torch's would not survive a fork.
    """

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def run(self, piece: Callable[[int, int], T], n_items: int, *, alone: bool = False) -> list[T]:
        """piece(start, stop) for consecutive ranges of 0 … n_items; the results in the order of the ranges.

        Each thread takes the next range when it is free, so that one that waits for a busy core holds up only its own. `alone`
        is for a loop too short to be worth the dispatch.
        """
        if alone or self.n_threads == 1:
            return [piece(0, n_items)]
        n_pieces = min(2 * self.n_threads, n_items)
        turns = itertools.count()
        results: dict[int, T] = {}

        def work() -> None:
            while (turn := next(turns)) < n_pieces:
                results[turn] = piece(turn * n_items // n_pieces, (turn + 1) * n_items // n_pieces)

        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_threads - 1, "facetric-solver")
        others = [self._pool.submit(work) for _ in range(1, self.n_threads)]
        try:
            work()
        finally:
            started = [other for other in others if not other.cancel()]
        for other in started:
            other.result()
        return [results[turn] for turn in range(n_pieces)]


def use_threads(wanted: Threads | int | None) -> AbstractContextManager[Threads]:
    """The caller's threads, or new ones: so many, or by default NUMBA_NUM_THREADS (without it, all available cores)."""
    if isinstance(wanted, Threads):
        return nullcontext(wanted)
    return Threads(int(numba.config.NUMBA_NUM_THREADS) if wanted is None else wanted)  # type: ignore[attr-defined]


@inner_kernel(fastmath=frozenset({"reassoc"}))
def total(distances: Distances) -> float:
    """The sum, in float64."""
    result = 0.0
    for distance in distances:
        result += distance
    return result


_BLOCK = np.uint64(64)  # unsigned: an index that needs no check for a sign


@inner_kernel()
def find_within(distance: Distances, limit: Distances, found: NDArray[np.uint32]) -> Index:
    """The points i with distance[i] ≤ limit[i], ascending; returns how many there are."""
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
    """The points of cluster k, ascending; returns how many there are."""
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
