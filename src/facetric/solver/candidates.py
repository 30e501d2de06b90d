"""Every point as a candidate for the next medoid of Algorithm 1: what it could capture, gain and reach.

As S grows, a point's distance to its medoid only falls, so the points that a candidate could still capture only become fewer:
each candidate keeps the list of them and shortens it when it is visited. For the same reason its gain in F never grows.
Together with :func:`delta_ceiling` gain and length bound what it can still reach: a candidate that cannot win is not visited.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.metrics.agreement import AMI, ZERO_ONE
from facetric.solver.counts import Counts, capture_change, expected_change, gather, table_delta_after_capture
from facetric.solver.distances import Distances
from facetric.solver.kernels import Index, inner_kernel
from facetric.solver.margin import Margin, delta_ceiling, sums_delta
from facetric.solver.scan import find_within


class Selection(NamedTuple):
    """S so far, and the candidates."""

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
    # the list of j: the points closer to j than to their medoid, and j itself, as of the last visit
    length: NDArray[np.int64]  # (m,) −1 before the first visit
    start: NDArray[np.int64]  # (m,) where it starts in the two arrays that follow
    points: NDArray[np.uint32]  # (m²,)
    distances: Distances  # (m²,) from j
    gain: NDArray[np.float64]  # (m,) F(S ∪ {j}) − F(S), as of the last visit
    change: NDArray[np.float64]  # (m, 3) of the sums behind Δ if j captured its list …
    evaluated: NDArray[np.int64]  # (m,) … as of this step; −1: not known
    ceiling: NDArray[np.float64]  # (m + 1,) γ·Δ is not larger than this after a capture of so many points


@njit(cache=True, nogil=True)
def find_favorite(selection: Selection, counts: Counts, candidates: NDArray[np.int64], step: int) -> int:
    """Set the ceilings; the place of the candidate that promises most, to be evaluated first: few others can then win."""
    gain, length, ceiling = selection.gain, selection.length, selection.ceiling
    gamma, scale, phi, sums = selection.gamma, selection.margin.scale, selection.margin.phi, counts.sums
    favorite = 0
    if not selection.prune or step == 0:
        return favorite
    longest = 0
    for j in candidates:
        longest = max(longest, length[j])
    if longest < len(candidates):
        for n in range(longest + 1):
            ceiling[n] = gamma * delta_ceiling(scale, phi, sums, n)
    else:
        for j in candidates:
            if length[j] >= 0:
                ceiling[length[j]] = gamma * delta_ceiling(scale, phi, sums, length[j])
    most = -np.inf
    for r in range(len(candidates)):
        j = candidates[r]
        if length[j] >= 0 and gain[j] + ceiling[length[j]] > most:
            most = gain[j] + ceiling[length[j]]
            favorite = r
    return favorite


@njit(cache=True, nogil=True)
def evaluate(
    selection: Selection, counts: Counts, candidates: NDArray[np.int64], favorite: int, step: int, end: Index, bar: float
) -> tuple[float, Index, int]:
    """Find the candidates' values, the favorite's first.

    Returns the best of them, at least `bar`; where the lists end after new ones have been made; and the number of visits.
    """
    # every array is taken out of its tuple before the loop: inside it that would count references
    D, near, cluster, touched = selection.D, selection.near, selection.cluster, selection.touched
    length, start, points, distances = selection.length, selection.start, selection.points, selection.distances
    value, gain, change, evaluated = selection.value, selection.gain, selection.change, selection.evaluated
    gamma, ceiling, margin, prune = selection.gamma, selection.ceiling, selection.margin, selection.prune
    scale, classes, phi, rise, expected = margin.scale, margin.classes, margin.phi, margin.rise, margin.expected
    table, sizes, sums = counts
    n_visits = 0
    best = bar
    for r in range(-1, len(candidates)):
        if r == favorite:
            continue
        j = candidates[favorite if r < 0 else r]
        if step == 0:  # with a single cluster Δ is the same for all
            value[j] = -_total(D[j])
            best = max(best, value[j])
            n_visits += len(near)
            continue
        value[j] = -np.inf
        goal = best - selection.tolerance
        known = False
        if length[j] < 0:
            n_visits += len(near)
            start[j] = end
            length[j], gain[j] = _make_list(D[j], near, j, points, distances, end)
            end += length[j]
            if prune and gain[j] + gamma * delta_ceiling(scale, phi, sums, length[j]) < goal:
                continue
        else:
            most = ceiling[length[j]]
            if gain[j] + most < goal:
                continue
            known = _is_known(evaluated[j], touched, cluster, points, start[j], start[j] + length[j])
            if not known:
                n_visits += length[j]
                evaluated[j] = -1
                length[j], gain[j] = _shorten_list(near, j, points, distances, start[j], start[j] + length[j])
                if gain[j] + most < goal:
                    continue
        stop = start[j] + length[j]
        n_visits += 1
        if gamma == 0.0:
            value[j] = gain[j]
        elif scale.score >= ZERO_ONE:
            value[j] = gain[j] + gamma * table_delta_after_capture(
                margin, table[: step + 1], cluster, points[start[j] : stop], step
            )
        else:
            if not known:
                change[j, 0], change[j, 1] = capture_change(rise, table, sizes, classes, cluster, points, start[j], stop, step)
                if scale.score == AMI:
                    change[j, 2] = expected_change(expected, sizes, cluster, points, start[j], stop)
                evaluated[j] = step
            value[j] = gain[j] + gamma * sums_delta(scale, sums[0] + change[j, 0], sums[1] + change[j, 1], sums[2] + change[j, 2])
        best = max(best, value[j])
    return best, end, n_visits


@inner_kernel(fastmath=frozenset({"reassoc"}))
def _total(distances: Distances) -> float:
    total = 0.0
    for distance in distances:
        total += distance
    return total


@inner_kernel()
def _is_known(
    evaluated: int,
    touched: NDArray[np.int64],
    cluster: NDArray[np.uint32],
    points: NDArray[np.uint32],
    start: Index,
    stop: Index,
) -> bool:
    """Whether no cluster that a candidate captures from has changed since the candidate was evaluated."""
    for r in range(start, stop):  # noqa: SIM110  (numba has no all() of a generator)
        if touched[cluster[points[r]]] >= evaluated:
            return False
    return True


@inner_kernel()
def _make_list(
    distance: Distances, near: Distances, j: int, points: NDArray[np.uint32], distances: Distances, start: Index
) -> tuple[Index, float]:
    """Make the list of candidate j; its length, and j's gain."""
    stop = start + find_within(distance, near, points[start : start + len(near)])
    for r in range(np.uint64(start), np.uint64(stop)):
        distances[r] = distance[points[r]]
    return _shorten_list(near, j, points, distances, start, stop)  # without the points at the same distance


@inner_kernel()
def _shorten_list(
    near: Distances, j: int, points: NDArray[np.uint32], distances: Distances, start: Index, stop: Index
) -> tuple[Index, float]:
    """Drop the points that have found a medoid nearer than j; the length of what is left, and j's gain."""
    gain = 0.0
    end = np.uint64(start)
    for r in range(np.uint64(start), np.uint64(stop)):
        i, distance = points[r], distances[r]
        saving = np.float64(near[i]) - np.float64(distance)
        points[end] = i
        distances[end] = distance
        end += np.uint64((saving > 0.0) | (i == j))  # without a branch, which would often be mispredicted
        gain += max(saving, 0.0)
    return np.int64(end) - start, gain


@njit(cache=True, nogil=True)
def best_place(selection: Selection, candidates: NDArray[np.int64], best: float) -> int:
    """The place of the best candidate, of the lowest index among equals."""
    value = selection.value
    goal = best - selection.tolerance
    place = -1
    for r in range(len(candidates)):
        if value[candidates[r]] >= goal and (place < 0 or candidates[r] < candidates[place]):
            place = r
    return place


@njit(cache=True, nogil=True)
def count_capture(selection: Selection, counts: Counts, j: int, step: int) -> None:
    """Bring the counts up to date for the points that j is about to capture."""
    if step > 0:
        captured = selection.points[selection.start[j] : selection.start[j] + selection.length[j]]
        gather(selection.margin, counts, captured, selection.cluster, step)


@njit(cache=True, nogil=True)
def capture(selection: Selection, j: int, step: int) -> None:
    """Give the new medoid j the points on its list."""
    if step == 0:
        selection.near[:] = selection.D[j]
    else:
        for i in selection.points[selection.start[j] : selection.start[j] + selection.length[j]]:
            selection.touched[selection.cluster[i]] = step
            selection.cluster[i] = step
            selection.near[i] = selection.D[j, i]
        selection.touched[step] = step


@inner_kernel()
def pack(selection: Selection, n_remaining: int) -> None:
    """Move the lists together, so that a step reads one stretch of memory. They lie in ascending order of candidates."""
    length, start, points, distances = selection.length, selection.start, selection.points, selection.distances
    end = 0
    for j in selection.remaining[:n_remaining]:
        if length[j] >= 0:
            first = start[j]
            start[j] = end
            for r in range(first, first + length[j]):
                points[end] = points[r]
                distances[end] = distances[r]
                end += 1
