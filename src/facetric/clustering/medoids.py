"""From costs to medoids: greedy, then local search, for a given number or a given opening cost.

No exchange of one medoid improves what local search finds, but one of several may. So with a given number, ruin and recreate
(Schrimpf et al. 2000): some medoids close, those that are missed least, the others look for better places, and greedy opens as
many again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facetric.clustering.knn import in_blocks
from facetric.clustering.moves import cheapest_to_close, fill_gains, greedy, improve
from facetric.clustering.state import UNSERVED, Dense, Problem, State, close_facility, empty_state, open_facilities, open_facility

RECREATED = (1 / 4, 1 / 8)  # fractions of a given number of medoids, one after the other
TOLERANCE = 1e-9  # a move helps when it saves more than this fraction of the mean cap: far above the rounding of the sums


@dataclass(frozen=True, eq=False)
class Medoids:
    """A locally optimal set of medoids, and where every client stands. Unserved clients have facility −1 and pay their cap."""

    medoids: NDArray[np.int64]  # (k,) sorted
    near: NDArray[np.int64]  # (n,) the medoid of every client; a medoid serves itself
    near_costs: NDArray[np.float64]  # (n,)
    second_costs: NDArray[np.float64]  # (n,) at the best other medoid, or for staying alone or unserved
    objective: float  # Σ near_costs + opening cost × number of medoids
    n_sweeps: int


def solve(
    problem: Problem,
    *,
    n_clusters: int | None = None,
    opening_cost: float | None = None,
    start: NDArray[np.int64] | None = None,
    order: NDArray[np.int64] | None = None,
    recreated: Sequence[float] = (),
    max_sweeps: int = 100,
) -> Medoids:
    """Exactly n_clusters medoids, or as many as pay for their opening cost. `start` replaces greedy.

    With n_clusters, these fractions of the medoids are `recreated` in the end, each time keeping the better of the two results.

    With an opening cost, caps must be opening_cost + the cost of a client at its own facility: staying alone is opening it.
    Candidates are visited from the largest first gain to the smallest unless `order` says otherwise, so that the result does not
    depend on the order of the points; ties go to the lower index.
    """
    n = len(problem.caps)
    fixed = n_clusters is not None
    price = 0.0 if opening_cost is None else float(opening_cost)
    tolerance = TOLERANCE * float(problem.caps.mean())
    if start is None or order is None:
        gains = _gains(problem, empty_state(problem.caps))
        order = np.argsort(-gains, kind="stable") if order is None else order
    if start is None:
        state = empty_state(problem.caps)
        greedy(problem, state, gains, n if n_clusters is None else n_clusters, price, tolerance)
    else:
        state = open_facilities(problem, start)
    n_sweeps = improve(problem, state, order, fixed, price, tolerance, max_sweeps)
    for fraction in recreated if n_clusters is not None and n_clusters < n else ():
        state, n_more = _ruin_and_recreate(problem, state, fraction, order, tolerance, max_sweeps - n_sweeps)
        n_sweeps += n_more
    while not fixed and (alone := np.flatnonzero(state.near == UNSERVED)).size:
        for facility in alone:
            open_facility(problem, state, int(facility))
        if n_sweeps < max_sweeps:
            n_sweeps += improve(problem, state, order, fixed, price, tolerance, max_sweeps - n_sweeps)
    return _medoids(problem, state, price, n_sweeps)


def _ruin_and_recreate(
    problem: Problem, state: State, fraction: float, order: NDArray[np.int64], tolerance: float, max_sweeps: int
) -> tuple[State, int]:
    """The better of the state and another, in which a fraction of the medoids was closed and as many opened; the sweeps taken."""
    k, other = int(state.n_open[0]), State._make(array.copy() for array in state)
    if k == 1 or max_sweeps < 2:
        return state, 0
    for _ in range(max(1, round(fraction * k))):
        close_facility(problem, other, cheapest_to_close(other))
    n_sweeps = improve(problem, other, order, True, 0.0, tolerance, 1)
    greedy(problem, other, _gains(problem, other), k, 0.0, tolerance)
    n_sweeps += improve(problem, other, order, True, 0.0, tolerance, max_sweeps - n_sweeps)
    is_better = other.near_costs.sum() < state.near_costs.sum() - tolerance
    return (other if is_better else state), n_sweeps


def _gains(problem: Problem, state: State) -> NDArray[np.float64]:
    """The gain of every facility, in parallel: each is summed by one thread, in one order."""
    n = len(problem.caps)
    gains = np.empty(n)
    in_blocks(lambda rows: fill_gains(problem, state, gains, rows.start, rows.stop), n, block_size=256)
    return gains


def _medoids(problem: Problem, state: State, opening_cost: float, n_sweeps: int) -> Medoids:
    """The state as a result. A medoid serves itself even where another one is as near: then its second choice is that one."""
    medoids = np.sort(state.medoids[: state.n_open[0]])
    near, near_costs, second_costs = state.near.copy(), state.near_costs.copy(), state.second_costs.copy()
    for medoid in medoids[near[medoids] != medoids]:
        second_costs[medoid] = near_costs[medoid]
        near[medoid], near_costs[medoid] = medoid, _own_cost(problem, medoid)
    objective = float(near_costs.sum() + opening_cost * len(medoids))
    return Medoids(medoids, near, near_costs, second_costs, objective, n_sweeps)


def _own_cost(problem: Problem, point: int) -> float:
    if isinstance(problem, Dense):
        return float(problem.costs[point, point])
    row = slice(problem.client_first[point], problem.client_first[point + 1])
    return float(problem.client_costs[row][problem.facilities[row] == point][0])
