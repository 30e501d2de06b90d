"""The problem that is searched, all costs or some, and the state of a search: who is open, where every client stands.

A client whose cap is the cheapest choice is unserved (facility −1). With an opening cost the cap is the price of staying alone:
opening a facility of one's own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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


Problem = Dense | Sparse


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
    medoids, slots, near, second = (np.full(n, UNSERVED, dtype=np.int64) for _ in range(4))
    return State(medoids, np.zeros(1, dtype=np.int64), slots, near, second, caps.copy(), caps.copy(), np.zeros(n))


def open_facilities(problem: Problem, medoids: NDArray[np.int64]) -> State:
    """The state in which exactly these facilities are open."""
    state = empty_state(problem.caps)
    for facility in medoids:
        open_facility(problem, state, facility)
    return state


def span(problem: Problem, facility: int) -> tuple[int, int]:
    """The positions at which a facility's clients lie, from and to."""
    raise NotImplementedError("compiled code only")


def entry(problem: Problem, facility: int, position: int) -> tuple[int, float]:
    """(client, cost) at a position of a facility."""
    raise NotImplementedError("compiled code only")


def _two_nearest(problem: Problem, state: State, client: int) -> tuple[float, int, float, int]:
    """(cost, facility) of the two nearest open facilities; ties go to the lower index, the cap wins no tie."""
    raise NotImplementedError("compiled code only")


@overload(span, strict=False)
def _span_compiled(problem: Any, facility: Any) -> Any:
    if problem.instance_class is Dense:
        return lambda problem, facility: (0, problem.costs.shape[1])
    return lambda problem, facility: (problem.facility_first[facility], problem.facility_first[facility + 1])


@overload(entry, strict=False, inline="always")
def _entry_compiled(problem: Any, facility: Any, position: Any) -> Any:
    if problem.instance_class is Dense:
        return lambda problem, facility, position: (position, problem.costs[facility, position])
    return lambda problem, facility, position: (problem.clients[position], problem.facility_costs[position])


@overload(_two_nearest, strict=False)
def _two_nearest_compiled(problem: Any, state: Any, client: Any) -> Any:
    if problem.instance_class is Dense:

        def every(problem: Any, state: Any, client: Any) -> Any:
            cap = problem.caps[client]
            near, second, near_cost, second_cost = UNSERVED, UNSERVED, cap, cap
            for position in range(state.n_open[0]):
                facility = state.medoids[position]
                _, cost = entry(problem, facility, client)
                if cost < near_cost or (cost == near_cost and (near == UNSERVED or facility < near)):
                    second, second_cost = near, near_cost
                    near, near_cost = facility, cost
                elif cost < second_cost or (cost == second_cost and (second == UNSERVED or facility < second)):
                    second, second_cost = facility, cost
            return near_cost, near, second_cost, second

        return every

    def sparse(problem: Any, state: Any, client: Any) -> Any:
        cap = problem.caps[client]
        near, second, near_cost, second_cost = UNSERVED, UNSERVED, cap, cap
        for position in range(problem.client_first[client], problem.client_first[client + 1]):
            facility: Any = np.int64(problem.facilities[position])
            cost: Any = np.float64(problem.client_costs[position])
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
def open_facility(problem: Problem, state: State, facility: int) -> None:
    """Open one, and let the clients that it suits come over."""
    state.slots[facility] = state.n_open[0]
    state.medoids[state.n_open[0]] = facility
    state.n_open[0] += 1
    state.losses[facility] = 0.0
    start, stop = span(problem, facility)
    for position in range(start, stop):
        client, cost = entry(problem, facility, position)
        if cost > state.second_costs[client] or (cost == state.second_costs[client] and state.second[client] >= 0):
            continue  # an equal cost does not displace an open facility, but it beats being unserved
        if cost < state.near_costs[client] or (cost == state.near_costs[client] and state.near[client] == UNSERVED):
            _place(state, client, cost, facility, state.near_costs[client], state.near[client])
        else:
            _place(state, client, state.near_costs[client], state.near[client], cost, facility)


@njit(cache=True, nogil=True)
def close_facility(problem: Problem, state: State, facility: int) -> None:
    """Close one; its clients, and those whose second choice it was, look around again."""
    last = state.medoids[state.n_open[0] - 1]
    state.medoids[state.slots[facility]] = last
    state.slots[last] = state.slots[facility]
    state.slots[facility] = -1
    state.n_open[0] -= 1
    start, stop = span(problem, facility)
    for position in range(start, stop):
        client, _ = entry(problem, facility, position)
        if state.near[client] == facility or state.second[client] == facility:
            near_cost, near, second_cost, second = _two_nearest(problem, state, client)
            _place(state, client, near_cost, near, second_cost, second)
