"""The search for medoids: lazy greedy, then add, drop and swap moves until no move helps.

The objective over a set S of open facilities, f and c for facilities and clients, λ the opening cost:

    Σ_c min(caps[c], min_{f ∈ S} cost[f, c])  +  λ·|S|

Swaps are accounted for as in FasterPAM (Schubert and Rousseeuw, "Fast and eager k-medoids clustering", 2021): every client
knows its nearest and second nearest open facility, every open facility the loss of closing it. One look at the clients of a
candidate then gives the gain of opening it, alone or in exchange for the best of the open ones, and a move that helps is made at
once. The same bookkeeping gives the gain of closing a facility.
"""

from __future__ import annotations

import heapq

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.clustering.state import Problem, State, close_facility, entry, open_facility, span


@njit(cache=True, nogil=True, fastmath={"reassoc"})  # a sum of terms ≥ 0 in vector registers: four times as fast
def opening_gain(problem: Problem, state: State, facility: int) -> float:
    """What all clients together pay less when this facility opens, its opening cost not counted."""
    gain = 0.0
    start, stop = span(problem, facility)
    for position in range(start, stop):
        client, cost = entry(problem, facility, position)
        gain += max(state.near_costs[client] - cost, 0.0)
    return gain


@njit(cache=True, nogil=True)
def exchange_gain(
    problem: Problem, state: State, candidate: int, cheapest: int, relief: NDArray[np.float64], touched: NDArray[np.int64]
) -> tuple[float, float, int]:
    """(gain of opening the candidate, gain of the best exchange with an open facility, which one that is).

    `relief[m]` collects by how much the candidate softens the loss of closing m; only facilities with clients near the candidate
    are touched. Of the others, the `cheapest` to close is the best to exchange, and no other needs a look. With −1 none has:
    where facilities may also open and close alone, an exchange of two that share no client is two moves, and helps when one does.
    """
    gain, n_touched = 0.0, 0
    start, stop = span(problem, candidate)
    for position in range(start, stop):
        client, cost = entry(problem, candidate, position)
        if cost < state.second_costs[client]:
            facility = state.near[client]
            if cost < state.near_costs[client]:
                gain += state.near_costs[client] - cost
                softer = state.second_costs[client] - state.near_costs[client]
            else:
                softer = state.second_costs[client] - cost
            if facility >= 0 and softer > 0.0:
                if relief[facility] == 0.0:
                    touched[n_touched] = facility
                    n_touched += 1
                relief[facility] += softer
    best, leaving = -np.inf, cheapest
    if cheapest >= 0:
        best = relief[cheapest] - state.losses[cheapest]
    for position in range(n_touched):
        facility = touched[position]
        exchange = relief[facility] - state.losses[facility]
        if exchange > best or (exchange == best and state.slots[facility] < state.slots[leaving]):
            best, leaving = exchange, facility
        relief[facility] = 0.0
    return gain, gain + best, leaving


@njit(cache=True, nogil=True)
def greedy(
    problem: Problem, state: State, gains: NDArray[np.float64], n_clusters: int, opening_cost: float, tolerance: float
) -> None:
    """Open the facility with the largest gain, again and again: up to n_clusters, while the gain exceeds the opening cost.

    `gains` are upper bounds (the gains in `state`), and lazily brought up to date: gains only fall, so the top of the heap is the
    best as soon as its own value is fresh. Ties go to the lower index.
    """
    heap, fresh = [(-gain, facility) for facility, gain in enumerate(gains)], np.full(len(gains), state.n_open[0])
    heapq.heapify(heap)
    while heap and state.n_open[0] < n_clusters:
        negative, facility = heap[0]
        if state.slots[facility] < 0 and fresh[facility] != state.n_open[0]:
            fresh[facility] = state.n_open[0]
            heapq.heapreplace(heap, (-opening_gain(problem, state, facility), facility))
            continue
        heapq.heappop(heap)
        if state.slots[facility] >= 0:
            continue
        if opening_cost > 0.0 and -negative <= opening_cost + tolerance:
            return
        open_facility(problem, state, facility)


@njit(cache=True, nogil=True)
def cheapest_to_close(state: State) -> int:
    """The open facility whose closing costs least; ties go to the first in the list of medoids."""
    best = state.medoids[0]
    for position in range(1, state.n_open[0]):
        facility = state.medoids[position]
        if state.losses[facility] < state.losses[best]:
            best = facility
    return int(best)


@njit(cache=True, nogil=True)
def recount_losses(state: State) -> None:
    """The losses from scratch: what many small updates have rounded away comes back."""
    for position in range(state.n_open[0]):
        state.losses[state.medoids[position]] = 0.0
    for client in range(len(state.near)):
        if state.near[client] >= 0:
            state.losses[state.near[client]] += state.second_costs[client] - state.near_costs[client]


@njit(cache=True, nogil=True)
def improve(
    problem: Problem, state: State, order: NDArray[np.int64], fixed: bool, opening_cost: float, tolerance: float, max_sweeps: int
) -> int:
    """Visit the facilities in this order, sweep after sweep, and make every move that helps at once; the number of sweeps.

    A closed facility may open, alone (unless the number is `fixed`) or in exchange for an open one; an open one may close
    (unless fixed). Ends when a whole sweep has found no move, or after max_sweeps.
    """
    n = len(order)
    relief, touched = np.zeros(n), np.empty(n, dtype=np.int64)
    n_idle, n_visits, cheapest = 0, 0, -1
    while n_idle < n and n_visits < max_sweeps * n:
        if n_visits % n == 0:
            recount_losses(state)
            if fixed:
                cheapest = cheapest_to_close(state)
        facility = order[n_visits % n]
        n_visits += 1
        n_idle += 1
        if state.slots[facility] >= 0:
            if not fixed and opening_cost - state.losses[facility] > tolerance:
                close_facility(problem, state, facility)
                n_idle = 0
        else:
            gain, exchange, leaving = exchange_gain(problem, state, facility, cheapest, relief, touched)
            alone = -np.inf if fixed else gain - opening_cost
            if max(alone, exchange) > tolerance:
                open_facility(problem, state, facility)
                if exchange > alone:
                    close_facility(problem, state, leaving)
                n_idle = 0
        if n_idle == 0 and fixed:
            cheapest = cheapest_to_close(state)
    return (n_visits + n - 1) // n


@njit(cache=True, nogil=True)
def fill_gains(problem: Problem, state: State, gains: NDArray[np.float64], start: int, stop: int) -> None:
    """The gains of opening the facilities start … stop − 1."""
    for facility in range(start, stop):
        gains[facility] = opening_gain(problem, state, facility)
