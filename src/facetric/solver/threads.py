"""Plain threads for the kernels' long loops. The kernels release the GIL; no OpenMP is involved, so torch's is left alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import numba

T = TypeVar("T")


class Threads:
    """Runs a loop in pieces on several threads, of which the caller's is one. The others start with the first long loop."""

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._pool: ThreadPoolExecutor | None = None

    def run(self, piece: Callable[[int, int, int], T], n_items: int, *, alone: bool = False) -> list[T]:
        """piece(thread, start, stop) for consecutive ranges of 0 … n_items; the results in the order of the ranges.

        Whoever is free takes the next range: a thread that waits for a busy core holds up only its own. `alone` is for a loop
        too short to be worth the dispatch.
        """
        if alone or self.n_threads == 1:
            return [piece(0, 0, n_items)]
        n_pieces = min(2 * self.n_threads, n_items)
        turns = itertools.count()
        results: dict[int, T] = {}

        def work(thread: int) -> None:
            while (turn := next(turns)) < n_pieces:
                results[turn] = piece(thread, turn * n_items // n_pieces, (turn + 1) * n_items // n_pieces)

        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_threads - 1, "facetric-solver")
        others = [self._pool.submit(work, thread) for thread in range(1, self.n_threads)]
        try:
            work(0)
        finally:
            started = [other for other in others if not other.cancel()]
        for other in started:
            other.result()
        return [results[turn] for turn in range(n_pieces)]

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


@contextmanager
def use_threads(wanted: Threads | int | None) -> Iterator[Threads]:
    """The caller's threads, or new ones: so many, or by default NUMBA_NUM_THREADS (without it, all available cores)."""
    if isinstance(wanted, Threads):
        yield wanted
        return
    threads = Threads(int(numba.config.NUMBA_NUM_THREADS) if wanted is None else wanted)  # type: ignore[attr-defined]
    try:
        yield threads
    finally:
        threads.close()
