"""Algorithm 1 of the paper: loss-augmented inference by greedy selection, exact or on random samples of candidates.

Each step adds the point j with the best A(S ∪ {j}). As S grows, a point's distance to its medoid only falls, so the points
that a candidate could still capture only become fewer: each candidate keeps the list of them and shortens it at a visit. One
step then costs the sum of the lists, about m²/|S|, and the whole selection about m²·log|Y|.

For the same reason a candidate's gain in F and the length of its list never grow. Together with :func:`delta_ceiling` they
bound what it can still reach: a candidate that cannot win is not visited.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.metrics.agreement import AMI, ZERO_ONE
from facetric.solver import margin as margins
from facetric.solver.margin import Counts, Margin, compiled_margin
from facetric.solver.nearest import find_within
from facetric.solver.distances import Distances
from facetric.solver.problem import ClusteringProblem
from facetric.solver.threads import Threads, use_threads

_LONG_STEP = 100_000  # visits to candidates and to the points on their lists; so many are worth several threads


def greedy(problem: ClusteringProblem, *, prune: bool = True, threads: Threads | int | None = None) -> NDArray[np.int64]:
    """The medoids of Algorithm 1 in order of selection. (n_clusters,)

    `prune` skips candidates that cannot win; like the number of threads, it never changes the result.
    """
    return _select(problem, np.empty((problem.n_clusters, 0)), prune, threads)


def stochastic_greedy(problem: ClusteringProblem, rng: np.random.Generator, *, epsilon: float = 1e-4) -> NDArray[np.int64]:
    """Algorithm 1 on a fresh random sample of (m/|Y|)·ln(1/ε) candidates per step (Mirzasoleiman et al. 2015)."""
    sample_size = math.ceil(problem.n_points / problem.n_clusters * math.log(1.0 / epsilon))
    sample_size = min(sample_size, problem.n_points)
    return _select(problem, rng.random((problem.n_clusters, sample_size)), True, 1)


def random_medoids(problem: ClusteringProblem, rng: np.random.Generator) -> NDArray[np.int64]:
    """Distinct points at random: the initialization of the paper's ablation (Section on implementation details)."""
    return rng.permutation(problem.n_points)[: problem.n_clusters].astype(np.int64)


class _Selection(NamedTuple):
    """S so far, and every point as a candidate for it."""

    D: Distances  # (m, m) row j: the distance of every point to medoid j
    gamma: float
    margin: Margin
    tolerance: float
    prune: bool
    near: Distances  # (m,) a point's distance to its medoid
    cluster: NDArray[np.uint32]  # (m,) the position of that medoid in S
    touched: NDArray[np.int64]  # (n_clusters,) the last step that changed the cluster
    remaining: NDArray[np.int64]  # (m,) V \ S comes first
    value: NDArray[np.float64]  # (m,) A(S ∪ {j}) − F(S); −inf for a candidate that cannot win
    # j's list: the points closer to j than to their medoid, and j itself, as of the last visit
    length: NDArray[np.int64]  # (m,) −1 before the first visit
    start: NDArray[np.int64]  # (m,) where it starts in the two arrays that follow
    points: NDArray[np.uint32]  # (m²,)
    distances: Distances  # (m²,) from j
    gain: NDArray[np.float64]  # (m,) F(S ∪ {j}) − F(S), as of the last visit
    change: NDArray[np.float64]  # (m, 3) of the sums behind Δ if j captured its list, found at step
    evaluated: NDArray[np.int64]  # (m,); −1: not known
    ceiling: NDArray[np.float64]  # (m + 1,) γ·Δ is not larger after a capture of so many points


def _select(
    problem: ClusteringProblem, draws: NDArray[np.float64], prune: bool, threads: Threads | int | None
) -> NDArray[np.int64]:
    D, m = problem.from_medoid, problem.n_points
    medoids = np.empty(problem.n_clusters, dtype=np.int64)
    with compiled_margin(problem) as margin, use_threads(1 if callable(problem.margin) else threads) as crew:
        selection = _Selection(
            D=D,
            gamma=problem.margin_weight,
            margin=margin,
            tolerance=problem.tolerance,
            prune=prune,
            near=np.empty(m, D.dtype),
            cluster=np.zeros(m, np.uint32),
            touched=np.zeros(problem.n_clusters, np.int64),
            remaining=np.arange(m),
            value=np.empty(m),
            length=np.full(m, -1),
            start=np.empty(m, np.int64),
            points=np.empty(m * m, np.uint32),
            distances=np.empty(m * m, D.dtype),
            gain=np.empty(m),
            change=np.zeros((m, 3)),
            evaluated=np.full(m, -1),
            ceiling=np.full(m + 1, np.inf),
        )
        counts = margins.count(margin, selection.cluster, problem.n_clusters)
        step = 0
        if draws.shape[1] == 0 and crew.n_threads > 1:
            step = _long_steps(selection, counts, medoids, crew)
        _steps(selection, counts, medoids, step, draws)
    return medoids


def _long_steps(selection: _Selection, counts: Counts, medoids: NDArray[np.int64], crew: Threads) -> int:
    """The first steps, as long as they are long, each with its candidates spread over the threads. How many they are."""
    m, step = len(selection.near), 0
    n_visits = m * m
    if n_visits < _LONG_STEP:
        return step
    every_count = [counts, *(Counts(*(array.copy() for array in counts)) for _ in range(crew.n_threads - 1))]
    while step < len(medoids) and n_visits >= _LONG_STEP:
        candidates = selection.remaining[: m - step]
        bar = _set_bar(selection, counts, candidates, step)
        found = crew.run(partial(_evaluate_piece, selection, every_count, candidates, step, bar), m - step)
        n_visits = sum(visits for _, visits in found) if step > 0 else n_visits
        place = _best_place(selection, candidates, max(best for best, _ in found))
        medoids[step] = candidates[place]
        for each in every_count:
            _count_capture(selection, each, medoids[step], step)
        _capture(selection, medoids[step], step)
        candidates[place:-1] = candidates[place + 1 :].copy()
        step += 1
    return step


def _evaluate_piece(
    selection: _Selection,
    every_count: list[Counts],
    candidates: NDArray[np.int64],
    step: int,
    bar: float,
    thread: int,
    first: int,
    last: int,
) -> tuple[float, int]:
    free = first * len(selection.near)  # new lists of one piece keep to its own part of the memory
    best, _, n_visits = _evaluate(selection, every_count[thread], candidates[first:last], step, free, bar)
    return best, n_visits


@njit(cache=True, nogil=True)
def _steps(
    selection: _Selection, counts: Counts, medoids: NDArray[np.int64], step: int, draws: NDArray[np.float64]
) -> None:
    remaining = selection.remaining
    m = len(remaining)
    sampled = draws.shape[1] > 0
    end = 0  # of the lists
    room = m * m
    while step < len(medoids):
        n_remaining = n_candidates = m - step
        if sampled:
            n_candidates = min(draws.shape[1], n_remaining)
            for r in range(n_candidates):  # a partial Fisher-Yates shuffle: a sample without replacement
                other = r + int(draws[step, r] * (n_remaining - r))
                remaining[r], remaining[other] = remaining[other], remaining[r]
        candidates = remaining[:n_candidates]
        bar = _set_bar(selection, counts, candidates, step)
        best, end, _ = _evaluate(selection, counts, candidates, step, end, bar)
        place = _best_place(selection, candidates, best)
        medoids[step] = candidates[place]
        _count_capture(selection, counts, medoids[step], step)
        _capture(selection, medoids[step], step)
        if sampled:
            remaining[place] = remaining[n_remaining - 1]
        else:
            for r in range(place, n_remaining - 1):
                remaining[r] = remaining[r + 1]
            if step > 0 and 2 * _n_listed(selection, n_remaining - 1) < room:
                room = _pack(selection, n_remaining - 1)
        step += 1


@njit(cache=True, nogil=True)
def _n_listed(selection: _Selection, n_remaining: int) -> int:
    """The length of all lists together, the whole batch for those not made yet."""
    length, remaining = selection.length, selection.remaining
    m = len(length)
    total = 0
    for r in range(n_remaining):
        total += m if length[remaining[r]] < 0 else length[remaining[r]]
    return total


@njit(cache=True, nogil=True)
def _pack(selection: _Selection, n_remaining: int) -> int:
    """Move the lists together, so that a step reads one stretch of memory. They lie in ascending order of candidates."""
    points, distances = selection.points, selection.distances
    end = 0
    for j in selection.remaining[:n_remaining]:
        start = selection.start[j]
        selection.start[j] = end
        for r in range(start, start + selection.length[j]):
            points[end] = points[r]
            distances[end] = distances[r]
            end += 1
    return end


@njit(cache=True, nogil=True)
def _set_bar(selection: _Selection, counts: Counts, candidates: NDArray[np.int64], step: int) -> float:
    """Set the ceilings; the value of the candidate that promises most: one that stays below it need not be evaluated."""
    gain, length, ceiling = selection.gain, selection.length, selection.ceiling
    if not selection.prune or step == 0:
        return -np.inf
    longest = 0
    for j in candidates:
        longest = max(longest, length[j])
    if longest < len(candidates):
        for n in range(longest + 1):
            ceiling[n] = selection.gamma * margins.delta_ceiling(selection.margin, counts.sums, n)
    else:
        for j in candidates:
            if length[j] >= 0:
                ceiling[length[j]] = selection.gamma * margins.delta_ceiling(selection.margin, counts.sums, length[j])
    favorite = -1
    most = -np.inf
    for r in range(len(candidates)):
        j = candidates[r]
        if length[j] >= 0 and gain[j] + ceiling[length[j]] > most:
            most = gain[j] + ceiling[length[j]]
            favorite = r
    if favorite < 0:
        return -np.inf
    return float(_evaluate(selection, counts, candidates[favorite : favorite + 1], step, 0, -np.inf)[0])


@njit(cache=True, nogil=True)
def _evaluate(
    selection: _Selection, counts: Counts, candidates: NDArray[np.int64], step: int, end: int, bar: float
) -> tuple[float, int, int]:
    """Find the candidates' values.

    Returns the best of them, at least `bar`; where the lists end after new ones have been made; and the number of visits.
    """
    # every array is taken out of its tuple before the loop: inside it that would count references
    D, near, cluster, touched = selection.D, selection.near, selection.cluster, selection.touched
    length, start, points, distances = selection.length, selection.start, selection.points, selection.distances
    value, gain, change, evaluated = selection.value, selection.gain, selection.change, selection.evaluated
    gamma, ceiling, margin = selection.gamma, selection.ceiling, selection.margin
    score, classes, rise, expected = margin.score, margin.classes, margin.rise, margin.expected
    table, sizes, sums = counts
    n_visits = 0
    best = bar
    for j in candidates:
        if step == 0:  # with a single cluster Δ is the same for all
            value[j] = -_total(D[j])
            best = max(best, value[j])
            continue
        value[j] = -np.inf
        goal = best - selection.tolerance
        known = False
        if length[j] < 0:
            start[j] = end
            n_visits += len(near)
            length[j], gain[j] = _make_list(D[j], near, j, points, distances, end)
            end += length[j]
            if selection.prune and gain[j] + gamma * margins.delta_ceiling(margin, sums, length[j]) < goal:
                continue
        else:
            most = ceiling[length[j]]
            if gain[j] + most < goal:
                continue
            known = _is_known(evaluated[j], touched, cluster, points, start[j], start[j] + length[j])
            if not known:
                n_visits += 10 + length[j]
                evaluated[j] = -1
                length[j], gain[j] = _shorten_list(near, j, points, distances, start[j], start[j] + length[j])
                if gain[j] + most < goal:
                    continue
        stop = start[j] + length[j]
        n_visits += 1
        if gamma == 0.0:
            value[j] = gain[j]
        elif score >= ZERO_ONE:
            value[j] = gain[j] + gamma * margins.table_delta_after_capture(
                margin, counts, cluster, points[start[j] : stop], step, step + 1
            )
        else:
            if not known:
                change[j, 0], change[j, 1] = margins.capture_change(
                    rise, table, sizes, classes, cluster, points, start[j], stop, step
                )
                if score == AMI:
                    change[j, 2] = margins.expected_change(expected, sizes, cluster, points, start[j], stop)
                evaluated[j] = step
            value[j] = gain[j] + gamma * margins.sums_delta(
                score,
                margin.n_points,
                margin.total,
                margin.columns,
                sums[0] + change[j, 0],
                sums[1] + change[j, 1],
                sums[2] + change[j, 2],
            )
        best = max(best, value[j])
    return best, end, n_visits


@njit(cache=True, nogil=True, fastmath={"reassoc"})
def _total(distances: Distances) -> float:
    total = 0.0
    for distance in distances:
        total += distance
    return total


@njit(cache=True, nogil=True)
def _is_known(
    evaluated: int,
    touched: NDArray[np.int64],
    cluster: NDArray[np.uint32],
    points: NDArray[np.uint32],
    start: int,
    stop: int,
) -> bool:
    """Whether no cluster that a candidate captures from has changed since the candidate was evaluated."""
    for r in range(start, stop):
        if touched[cluster[points[r]]] >= evaluated:
            return False
    return True


@njit(cache=True, nogil=True)
def _make_list(
    distance: Distances, near: Distances, j: int, points: NDArray[np.uint32], distances: Distances, start: int
) -> tuple[int, float]:
    """Make the list of candidate j; its length, and j's gain."""
    stop = start + find_within(distance, near, points[start : start + len(near)])
    for r in range(np.uint64(start), np.uint64(stop)):
        distances[r] = distance[points[r]]
    return _shorten_list(near, j, points, distances, start, stop)  # without the points at the same distance


@njit(cache=True, nogil=True)
def _shorten_list(
    near: Distances, j: int, points: NDArray[np.uint32], distances: Distances, start: int, stop: int
) -> tuple[int, float]:
    """Drop the points that have found a medoid nearer than j; the length of what is left, and j's gain."""
    gain = 0.0
    end = np.uint64(start)
    for r in range(np.uint64(start), np.uint64(stop)):
        i, distance = points[r], distances[r]
        saving = float(near[i]) - float(distance)
        points[end] = i
        distances[end] = distance
        end += np.uint64((saving > 0.0) | (i == j))
        gain += max(saving, 0.0)
    return np.int64(end) - start, gain


@njit(cache=True, nogil=True)
def _best_place(selection: _Selection, candidates: NDArray[np.int64], best: float) -> int:
    """The place of the best candidate, of the lowest index among equals."""
    value = selection.value
    goal = best - selection.tolerance
    place = -1
    for r in range(len(candidates)):
        if value[candidates[r]] >= goal and (place < 0 or candidates[r] < candidates[place]):
            place = r
    return place


@njit(cache=True, nogil=True)
def _count_capture(selection: _Selection, counts: Counts, j: int, step: int) -> None:
    """Bring the counts up to date for medoid j, before it takes its points."""
    if step > 0:
        for i in selection.points[selection.start[j] : selection.start[j] + selection.length[j]]:
            margins.move(selection.margin, counts, i, selection.cluster[i], step)


@njit(cache=True, nogil=True)
def _capture(selection: _Selection, j: int, step: int) -> None:
    """Give medoid j the points on its list."""
    if step == 0:
        selection.near[:] = selection.D[j]
    else:
        for i in selection.points[selection.start[j] : selection.start[j] + selection.length[j]]:
            selection.touched[selection.cluster[i]] = step
            selection.cluster[i] = step
            selection.near[i] = selection.D[j, i]
        selection.touched[step] = step
