"""The last search for k medoids of many points: every point is tried in place of a medoid, at exact costs, in linear memory.

The exchanges are those that the matrix of all distances would lead to, but it is never there as a whole. Blocks of float32
products say which clients a candidate may be near enough to, and what they pay there at least: both allow for the rounding of a
product, so that a candidate without a gain at these costs has none. Where there may be one, the costs come from differences.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import cycle, islice

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.clustering.centers import two_nearest
from facetric.clustering.distances import cost_of_square, pair_cost, square_of_cost
from facetric.clustering.levels import Cloud, Clusters
from facetric.clustering.search import cheapest_to_close, exchange_gain, opening_gain, recount_losses
from facetric.clustering.solve import TOLERANCE, renew
from facetric.clustering.state import UNSERVED, Computed, State, close_facility, empty_state, open_facility
from facetric.machine import blas_threads, numba_threads

_BLOCK_ENTRIES = 2**23  # products that are there at a time, for every thread: 32 MB
_ROUNDING = 1.2e-7  # of a float32 product of two vectors, per dimension and unit of their squared lengths: twice the worst case
_CHUNK = 32  # clients that are passed over together


def exchange_all(
    cloud: Cloud, clusters: Clusters, max_sweeps: int, *, order: NDArray[np.int64] | None = None, renewed: Sequence[float] = ()
) -> Clusters:
    """As many clusters, at a total cost that no exchange of a medoid for a point lowers (unless max_sweeps ends it before).

    Candidates are visited from the nearest to its medoid to the farthest, unless `order` says otherwise, and exchanged at once.
    These shares of the medoids are `renewed` in the end, see :func:`facetric.clustering.solve.renew`.
    """
    problem = _computed(cloud)
    state = _state(problem, clusters.medoids)
    order = np.argsort(state.near_costs, kind="stable") if order is None else order
    tolerance = TOLERANCE * float(problem.caps.mean())
    squares = _squares(cloud.vectors) * (1 - _ROUNDING * (cloud.vectors.shape[1] + 16))

    def improve(state: State, max_sweeps: int) -> int:
        return _improve(problem, state, order, squares, tolerance, max_sweeps)

    n_sweeps = improve(state, max_sweeps)
    for share in renewed:
        state, n_more = renew(
            problem, state, share, improve, lambda other: _gains(problem, other, order, squares), tolerance, max_sweeps - n_sweeps
        )
        n_sweeps += n_more
    medoids = np.sort(state.medoids[: state.n_open[0]])
    near = state.near.copy()
    near[medoids] = medoids
    return Clusters(np.searchsorted(medoids, near), medoids, clusters.n_sweeps + n_sweeps)


def _improve(
    problem: Computed,
    state: State,
    order: NDArray[np.int64],
    squares: NDArray[np.float64],
    tolerance: float,
    max_sweeps: int,
) -> int:
    """Exchanges until a whole sweep has found none, or max_sweeps are over; the number of sweeps."""
    n, n_idle, n_visits = len(order), 0, 0
    for block, products in _products(problem.vectors, order, max_sweeps):
        if n_visits % n == 0:
            recount_losses(state)
        n_idle = _visit(problem, state, block, products, squares, tolerance, n_idle)
        n_visits += len(block)
        if n_idle >= n:
            break
    return -(-n_visits // n)


def _gains(problem: Computed, state: State, order: NDArray[np.int64], squares: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the clients of every point would pay less if it opened: a little more than that, within the rounding of a product."""
    gains = np.empty(len(order))
    for block, products in _products(problem.vectors, order, 1):
        _fill_gains(problem, state, block, products, squares, gains)
    return gains


def _squares(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    squares: NDArray[np.float64] = np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)
    return squares


def _computed(cloud: Cloud) -> Computed:
    n, vectors = len(cloud.vectors), cloud.vectors
    farthest = 4.0 * float(_squares(vectors).max())  # no two are farther apart
    caps = np.full(n, 2.0 * cost_of_square(farthest, cloud.cosine, cloud.squared) or 1.0)
    nobody = np.array([UNSERVED, 0])
    return Computed(vectors, cloud.cosine, cloud.squared, caps, nobody, np.empty(n, dtype=np.int64), np.empty(n))


def _state(problem: Computed, medoids: NDArray[np.int64]) -> State:
    """The state in which exactly these points are open; of two equally near within float32 rounding, either may be first."""
    state, k = empty_state(problem.caps), len(medoids)
    centers = problem.vectors[medoids]
    found = two_nearest(problem.vectors, centers, cosine=problem.cosine, squared=problem.squared)
    state.n_open[0], state.medoids[:k], state.slots[medoids] = k, medoids, np.arange(k)
    state.near[:], state.near_costs[:] = medoids[found.near], found.near_costs
    if k > 1:
        state.second[:], state.second_costs[:] = medoids[found.second], found.second_costs
    return state


def _products(
    vectors: NDArray[np.float32], order: NDArray[np.int64], n_sweeps: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """The candidates in blocks, sweep after sweep, each with −2·x·y for all points y: computed ahead, one thread for a block."""
    size = max(1, _BLOCK_ENTRIES // len(order))
    blocks = [order[first : first + size] for first in range(0, len(order), size)]
    n_threads = numba_threads()
    with blas_threads(1), ThreadPoolExecutor(n_threads, "facetric-clustering") as pool:
        ahead: deque[tuple[NDArray[np.int64], Future[NDArray[np.float32]]]] = deque()
        try:
            for block in islice(cycle(blocks), n_sweeps * len(blocks)):
                ahead.append((block, pool.submit(lambda rows: (-2 * vectors[rows]) @ vectors.T, block)))
                if len(ahead) > n_threads:
                    first, products = ahead.popleft()
                    yield first, products.result()
            for first, products in ahead:
                yield first, products.result()
        finally:
            for _, products in ahead:
                products.cancel()


@njit(cache=True, nogil=True)
def _visit(
    problem: Computed,
    state: State,
    block: NDArray[np.int64],
    products: NDArray[np.float32],
    squares: NDArray[np.float64],
    tolerance: float,
    n_idle: int,
) -> int:
    """Try the candidates of a block one after the other; how many have been tried in vain since the last exchange."""
    n = len(squares)
    relief, touched, limits = np.zeros(n), np.empty(n, dtype=np.int64), np.empty(n, dtype=np.float32)
    _set_limits(problem, state, squares, limits)
    cheapest = cheapest_to_close(state)
    for row in range(len(block)):
        candidate = block[row]
        n_idle += 1
        if n_idle > n:
            break
        if state.slots[candidate] >= 0:
            continue
        _list(problem, state, candidate, products[row], squares, limits, False)
        if exchange_gain(problem, state, candidate, cheapest, relief, touched)[1] <= tolerance:
            continue  # not even at costs that are too low
        _list(problem, state, candidate, products[row], squares, limits, True)
        _, gain, leaving = exchange_gain(problem, state, candidate, cheapest, relief, touched)
        if gain > tolerance:
            open_facility(problem, state, candidate)
            problem.candidate[0] = UNSERVED
            close_facility(problem, state, leaving)
            _set_limits(problem, state, squares, limits)
            cheapest = cheapest_to_close(state)
            n_idle = 0
    problem.candidate[0] = UNSERVED
    return n_idle


@njit(cache=True, nogil=True)
def _fill_gains(
    problem: Computed,
    state: State,
    block: NDArray[np.int64],
    products: NDArray[np.float32],
    squares: NDArray[np.float64],
    gains: NDArray[np.float64],
) -> None:
    limits = np.empty(len(squares), dtype=np.float32)
    _set_limits(problem, state, squares, limits)
    for row in range(len(block)):
        _list(problem, state, block[row], products[row], squares, limits, False)
        gains[block[row]] = opening_gain(problem, state, block[row])
    problem.candidate[0] = UNSERVED


@njit(cache=True, nogil=True)
def _set_limits(problem: Computed, state: State, squares: NDArray[np.float64], limits: NDArray[np.float32]) -> None:
    """What a product and the candidate's square must stay below, for the candidate to be nearer than the second medoid."""
    for client in range(len(limits)):
        square = square_of_cost(state.second_costs[client], problem.cosine, problem.squared)
        limits[client] = square * (1 + 1e-6) - squares[client]


@njit(cache=True, nogil=True)
def _list(
    problem: Computed,
    state: State,
    candidate: int,
    products: NDArray[np.float32],
    squares: NDArray[np.float64],
    limits: NDArray[np.float32],
    exact: bool,
) -> None:
    """List the clients for which the candidate would be the first or second choice, at costs that are exact or a little low."""
    size, own = 0, np.float32(squares[candidate])
    for start in range(0, len(limits), _CHUNK):
        stop = min(start + _CHUNK, len(limits))
        n_near = 0
        for client in range(start, stop):
            n_near += products[client] + own < limits[client]
        if n_near == 0:
            continue
        for client in range(start, stop):
            if products[client] + own < limits[client]:
                if exact:
                    cost = pair_cost(problem.vectors[candidate], problem.vectors[client], problem.cosine, problem.squared)
                else:
                    square = max(products[client] + squares[candidate] + squares[client], 0.0)
                    cost = cost_of_square(square, problem.cosine, problem.squared)
                if cost < state.second_costs[client]:
                    problem.clients[size], problem.costs[size] = client, cost
                    size += 1
    problem.candidate[0], problem.candidate[1] = candidate, size
