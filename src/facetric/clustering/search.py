"""The search for medoids: lazy greedy, then add, drop and swap moves until no move helps.

The objective over a set S of open facilities, f and c for facilities and clients, λ the opening cost:

    Σ_c min(caps[c], min_{f ∈ S} cost[f, c])  +  λ·|S|

Swaps are accounted for as in FasterPAM (Schubert and Rousseeuw, "Fast and eager k-medoids clustering", 2021): every client
knows its nearest and second nearest open facility, every open facility the loss of closing it. One look at the clients of a
candidate then gives the gain of opening it, alone or in exchange for the best of the open ones, and a move that helps is made at
once. The same bookkeeping gives the gain of closing a facility.

A client whose cap is the cheapest choice is unserved (facility −1). With an opening cost the cap is the price of staying alone:
opening a facility of one's own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

UNSERVED = -1


class Dense(NamedTuple):
    """All costs, +∞ where an assignment is forbidden."""

    costs: NDArray[np.floating]  # (n, n) facility × client
    caps: NDArray[np.float64]  # (n,) what a client pays when nobody serves it


class Sparse(NamedTuple):
    """The costs of some pairs; every other pair is forbidden. Once by facility, once by client and there nearest first."""

    facility_first: NDArray[np.int64]  # (n + 1,)
    clients: NDArray[np.int32]
    facility_costs: NDArray[np.float32]
    client_first: NDArray[np.int64]  # (n + 1,)
    facilities: NDArray[np.int32]
    client_costs: NDArray[np.float32]
    caps: NDArray[np.float64]  # (n,)


Costs = Dense | Sparse


class State(NamedTuple):
    """Who is open, and where every client stands."""

    medoids: NDArray[np.int64]  # (n,) the open facilities, the first n_open[0] entries
    n_open: NDArray[np.int64]  # (1,)
    slots: NDArray[np.int64]  # (n,) facility → position in medoids, −1 when closed
    near: NDArray[np.int64]  # (n,) the nearest open facility of a client
    second: NDArray[np.int64]  # (n,) and the one after it
    near_costs: NDArray[np.float64]  # (n,) never above the cap
    second_costs: NDArray[np.float64]  # (n,) never above the cap
    losses: NDArray[np.float64]  # (n,) by facility: what its clients pay more when it closes


def unserved_cost(costs: NDArray[np.floating]) -> float:
    """A cap for a given number of medoids: being served, however far, is always better."""
    return 2.0 * float(costs.max(initial=0.0)) or 1.0


def empty_state(caps: NDArray[np.float64]) -> State:
    """Nobody is open: every client pays its cap."""
    n = len(caps)
    nobody = [np.full(n, UNSERVED, dtype=np.int64) for _ in range(4)]
    return State(nobody[0], np.zeros(1, dtype=np.int64), *nobody[1:], caps.copy(), caps.copy(), np.zeros(n))


def open_facilities(problem: Costs, medoids: NDArray[np.int64]) -> State:
    """The state in which exactly these facilities are open."""
    state = empty_state(problem.caps)
    for facility in medoids:
        open_facility(problem, state, facility)
    return state


def _span(problem, facility):  # type: ignore[no-untyped-def]
    raise NotImplementedError("compiled code only")


def _entry(problem, facility, position):  # type: ignore[no-untyped-def]
    raise NotImplementedError("compiled code only")


def _two_nearest(problem, state, client):  # type: ignore[no-untyped-def]
    raise NotImplementedError("compiled code only")


@overload(_span)
def _span_compiled(problem, facility):  # type: ignore[no-untyped-def]
    """The positions at which a facility's clients lie."""
    if problem.instance_class is Dense:
        return lambda problem, facility: (0, problem.costs.shape[1])
    return lambda problem, facility: (problem.facility_first[facility], problem.facility_first[facility + 1])


@overload(_entry, inline="always")
def _entry_compiled(problem, facility, position):  # type: ignore[no-untyped-def]
    """(client, cost) at a position of a facility."""
    if problem.instance_class is Dense:
        return lambda problem, facility, position: (position, problem.costs[facility, position])
    return lambda problem, facility, position: (problem.clients[position], problem.facility_costs[position])


@overload(_two_nearest)
def _two_nearest_compiled(problem, state, client):  # type: ignore[no-untyped-def]
    """(cost, facility) of the two nearest open facilities; ties go to the lower index, the cap wins no tie."""
    if problem.instance_class is Dense:

        def dense(problem, state, client):  # type: ignore[no-untyped-def]
            cap = problem.caps[client]
            near, second, near_cost, second_cost = UNSERVED, UNSERVED, cap, cap
            for position in range(state.n_open[0]):
                facility = state.medoids[position]
                cost = problem.costs[facility, client]
                if cost < near_cost or (cost == near_cost and (near == UNSERVED or facility < near)):
                    second, second_cost = near, near_cost
                    near, near_cost = facility, cost
                elif cost < second_cost or (cost == second_cost and (second == UNSERVED or facility < second)):
                    second, second_cost = facility, cost
            return near_cost, near, second_cost, second

        return dense

    def sparse(problem, state, client):  # type: ignore[no-untyped-def]
        cap = problem.caps[client]
        near, second, near_cost, second_cost = UNSERVED, UNSERVED, cap, cap
        for position in range(problem.client_first[client], problem.client_first[client + 1]):
            facility = np.int64(problem.facilities[position])
            cost = np.float64(problem.client_costs[position])
            if state.slots[facility] >= 0 and cost <= cap:
                if near == UNSERVED:
                    near, near_cost = facility, cost
                else:
                    second, second_cost = facility, cost
                    break
        return near_cost, near, second_cost, second

    return sparse


@njit(cache=True, nogil=True)
def _place(state: State, client: int, near_cost: float, near: int, second_cost: float, second: int) -> None:
    """Set where a client stands, and keep the losses true."""
    if state.near[client] >= 0:
        state.losses[state.near[client]] -= state.second_costs[client] - state.near_costs[client]
    state.near[client], state.near_costs[client] = near, near_cost
    state.second[client], state.second_costs[client] = second, second_cost
    if near >= 0:
        state.losses[near] += second_cost - near_cost


@njit(cache=True, nogil=True)
def open_facility(problem: Costs, state: State, facility: int) -> None:
    """Open one, and let the clients that it suits come over."""
    state.slots[facility] = state.n_open[0]
    state.medoids[state.n_open[0]] = facility
    state.n_open[0] += 1
    state.losses[facility] = 0.0
    start, stop = _span(problem, facility)
    for position in range(start, stop):
        client, cost = _entry(problem, facility, position)
        if cost > state.second_costs[client] or (cost == state.second_costs[client] and state.second[client] >= 0):
            continue  # an equal cost does not displace an open facility, but it beats being unserved
        if cost < state.near_costs[client] or (cost == state.near_costs[client] and state.near[client] == UNSERVED):
            _place(state, client, cost, facility, state.near_costs[client], state.near[client])
        else:
            _place(state, client, state.near_costs[client], state.near[client], cost, facility)


@njit(cache=True, nogil=True)
def close_facility(problem: Costs, state: State, facility: int) -> None:
    """Close one; its clients, and those whose second choice it was, look around again."""
    last = state.medoids[state.n_open[0] - 1]
    state.medoids[state.slots[facility]] = last
    state.slots[last] = state.slots[facility]
    state.slots[facility] = -1
    state.n_open[0] -= 1
    start, stop = _span(problem, facility)
    for position in range(start, stop):
        client, _ = _entry(problem, facility, position)
        if state.near[client] == facility or state.second[client] == facility:
            near_cost, near, second_cost, second = _two_nearest(problem, state, client)
            _place(state, client, near_cost, near, second_cost, second)


@njit(cache=True, nogil=True, fastmath={"reassoc"})  # a sum of terms ≥ 0 in vector registers: four times as fast
def opening_gain(problem: Costs, state: State, facility: int) -> float:
    """What all clients together pay less when this facility opens, its opening cost not counted."""
    gain = 0.0
    start, stop = _span(problem, facility)
    for position in range(start, stop):
        client, cost = _entry(problem, facility, position)
        gain += max(state.near_costs[client] - cost, 0.0)
    return gain


@njit(cache=True, nogil=True)
def exchange_gain(
    problem: Costs, state: State, candidate: int, cheapest: int, relief: NDArray[np.float64], touched: NDArray[np.int64]
) -> tuple[float, float, int]:
    """(gain of opening the candidate, gain of the best exchange with an open facility, which one that is).

    `relief[m]` collects by how much the candidate softens the loss of closing m; only facilities with clients near the candidate
    are touched. Of the others, the `cheapest` to close is the best to exchange, and no other needs a look. With −1 none has:
    where facilities may also open and close alone, an exchange of two that share no client is two moves, and helps when one does.
    """
    gain, n_touched = 0.0, 0
    start, stop = _span(problem, candidate)
    for position in range(start, stop):
        client, cost = _entry(problem, candidate, position)
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
        if exchange > best or (exchange == best and facility < leaving):
            best, leaving = exchange, facility
        relief[facility] = 0.0
    return gain, gain + best, leaving


@njit(cache=True, nogil=True)
def _ahead(gains: NDArray[np.float64], ranks: NDArray[np.int64], a: int, b: int) -> bool:
    return gains[a] > gains[b] or (gains[a] == gains[b] and ranks[a] < ranks[b])


@njit(cache=True, nogil=True)
def _sift_down(heap: NDArray[np.int64], size: int, root: int, gains: NDArray[np.float64], ranks: NDArray[np.int64]) -> None:
    while True:
        child = 2 * root + 1
        if child >= size:
            return
        if child + 1 < size and _ahead(gains, ranks, heap[child + 1], heap[child]):
            child += 1
        if not _ahead(gains, ranks, heap[child], heap[root]):
            return
        heap[root], heap[child] = heap[child], heap[root]
        root = child


@njit(cache=True, nogil=True)
def greedy(
    problem: Costs, state: State, gains: NDArray[np.float64], n_clusters: int, opening_cost: float, tolerance: float
) -> None:
    """Open the facility with the largest gain, again and again: up to n_clusters of them, while the gain exceeds the opening cost.

    `gains` are upper bounds (the gains in `state`), and lazily brought up to date: gains only fall, so the top of the heap is the
    best as soon as its own value is fresh. Ties go to the lower index.
    """
    n = len(gains)
    heap, ranks, fresh = np.arange(n), np.arange(n), np.full(n, state.n_open[0])
    size = n
    for root in range(n // 2 - 1, -1, -1):
        _sift_down(heap, size, root, gains, ranks)
    while size > 0 and state.n_open[0] < n_clusters:
        facility = heap[0]
        if state.slots[facility] < 0 and fresh[facility] != state.n_open[0]:
            gains[facility] = opening_gain(problem, state, facility)
            fresh[facility] = state.n_open[0]
            _sift_down(heap, size, 0, gains, ranks)
            continue
        size -= 1
        heap[0] = heap[size]
        _sift_down(heap, size, 0, gains, ranks)
        if state.slots[facility] >= 0:
            continue
        if opening_cost > 0.0 and gains[facility] <= opening_cost + tolerance:
            return
        open_facility(problem, state, facility)


@njit(cache=True, nogil=True)
def _cheapest(state: State) -> int:
    """The open facility whose closing costs least; ties go to the lower index."""
    best = state.medoids[0]
    for position in range(1, state.n_open[0]):
        facility = state.medoids[position]
        loss = state.losses[facility]
        if loss < state.losses[best] or (loss == state.losses[best] and facility < best):
            best = facility
    return best


@njit(cache=True, nogil=True)
def _recount_losses(state: State) -> None:
    """The losses from scratch: what many small updates have rounded away comes back."""
    for position in range(state.n_open[0]):
        state.losses[state.medoids[position]] = 0.0
    for client in range(len(state.near)):
        if state.near[client] >= 0:
            state.losses[state.near[client]] += state.second_costs[client] - state.near_costs[client]


@njit(cache=True, nogil=True)
def improve(
    problem: Costs, state: State, order: NDArray[np.int64], fixed: bool, opening_cost: float, tolerance: float, max_sweeps: int
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
            _recount_losses(state)
            if fixed:
                cheapest = _cheapest(state)
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
            cheapest = _cheapest(state)
    return (n_visits + n - 1) // n


@njit(cache=True, nogil=True)
def fill_gains(problem: Costs, state: State, gains: NDArray[np.float64], start: int, stop: int) -> None:
    """The gains of opening the facilities start … stop − 1."""
    for facility in range(start, stop):
        gains[facility] = opening_gain(problem, state, facility)
