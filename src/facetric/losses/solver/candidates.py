"""Candidates for the next medoid of Algorithm 1, evaluated one by one: what each could capture, and what A would become.

As S grows, a point's distance to its medoid only falls, so the points that a candidate could still capture only become fewer:
each candidate keeps the list of them and shortens it when it is visited. For the same reason its gain in F never grows.
Together with :func:`delta_ceiling` gain and length bound what it can still reach: a candidate that cannot win is not visited.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.losses.solver.compiled import Distances, Index, find_within, inner_kernel, total
from facetric.losses.solver.margin import Counts, Margin, delta_ceiling, gather, gathered_delta, sums_delta
from facetric.metrics.kernels import ZERO_ONE


class Selection(NamedTuple):
    """S so far, and the candidates."""

    D: Distances  # (m, m) row j: the distance of every point to medoid j
    gamma: float
    margin: Margin
    tolerance: float
    counts: Counts
    near: Distances  # (m,) a point's distance to its medoid
    cluster: NDArray[np.uint32]  # (m,) the position of that medoid in S
    cell: NDArray[np.uint32]  # (m,) the lowest point of the same cluster and class …
    n_cell: NDArray[np.uint32]  # (m,) … and how many such points there are, at its place
    class_members: NDArray[np.uint32]  # (m,) the points, class by class
    class_start: NDArray[np.int64]  # (n_classes + 1,) where a class starts in it
    remaining: NDArray[np.int64]  # (m,) V \ S comes first, in any order
    value: NDArray[np.float64]  # (m,) A(S ∪ {j}) − F(S); −inf for a candidate that cannot win
    # the list of j: the points closer to j than to their medoid, and j itself, as of the last visit
    length: NDArray[np.int64]  # (m,) −1 before the first visit
    start: NDArray[np.int64]  # (m,) where it starts in the two arrays that follow
    points: NDArray[np.uint32]  # (m²,)
    distances: Distances  # (m²,) from j
    gain: NDArray[np.float64]  # (m,) F(S ∪ {j}) − F(S), as of the last visit
    ceiling: NDArray[np.float64]  # (m + 1,) γ·Δ is not larger than this after a capture of so many points


class Taken(NamedTuple):
    """How many points a candidate has taken so far from each cell and cluster, and of each class.

    Counts start at a base that rises by m + 1 from candidate to candidate: what is below it counts as 0. Nothing is cleared.
    """

    base: NDArray[np.int64]  # (1,) of the last candidate
    of_cell: NDArray[np.int64]  # (m,)
    of_cluster: NDArray[np.int64]  # (n_clusters,)
    of_class: NDArray[np.int64]  # (n_classes,)


@inner_kernel()
def find_favorite(selection: Selection, candidates: NDArray[np.int64], step: int) -> int:
    """Set the ceilings; the place of the candidate that promises most, to be evaluated first: few others can then win."""
    gain, length, ceiling = selection.gain, selection.length, selection.ceiling
    gamma, scale, phi, sums = selection.gamma, selection.margin.scale, selection.margin.phi, selection.counts.sums
    favorite = 0
    if step == 0:
        return favorite
    longest = 0
    for j in candidates:
        longest = max(longest, length[j])
    for n in range(longest + 1):  # it never falls with n, and γ is the most
        ceiling[n] = gamma if n > 0 and ceiling[n - 1] == gamma else gamma * delta_ceiling(scale, phi, sums, n)
    most = -np.inf
    for r in range(len(candidates)):
        j = candidates[r]
        if length[j] >= 0 and gain[j] + ceiling[length[j]] > most:
            most = gain[j] + ceiling[length[j]]
            favorite = r
    return favorite


@inner_kernel()
def evaluate(
    selection: Selection, taken: Taken, candidates: NDArray[np.int64], favorite: int, step: int, end: Index
) -> tuple[float, Index]:
    """Find the candidates' values, the favorite's first. The best of them, and where the lists end with the new ones."""
    # every array is taken out of its tuple before the loop: inside it that would count references
    D, near, length, start = selection.D, selection.near, selection.length, selection.start
    points, distances, value, gain = selection.points, selection.distances, selection.value, selection.gain
    gamma, ceiling, margin, counts = selection.gamma, selection.ceiling, selection.margin, selection.counts
    scale, phi, sums = margin.scale, margin.phi, counts.sums
    rise, expected_rise, classes, expected_of = margin.rise, margin.expected_rise, margin.classes, margin.expected
    cell, cluster, n_cell, sizes = selection.cell, selection.cluster, selection.n_cell, counts.sizes
    m = len(near)
    base = taken.base[0]
    best = -np.inf
    for r in range(-1, len(candidates)):
        if r == favorite:
            continue
        j = candidates[favorite if r < 0 else r]
        if step == 0:  # with a single cluster Δ is the same for all
            value[j] = -total(D[j])
            best = max(best, value[j])
            continue
        value[j] = -np.inf
        goal = best - selection.tolerance
        if length[j] < 0:
            start[j] = end
            length[j], gain[j] = _make_list(D[j], near, j, points, distances, end)
            end += length[j]
            most = gamma * delta_ceiling(scale, phi, sums, length[j])
        else:
            most = ceiling[length[j]]
            if gain[j] + most < goal:
                continue
            length[j], gain[j] = _shorten_list(near, j, points, distances, start[j], start[j] + length[j])
        if gain[j] + most < goal:
            continue
        if gamma == 0.0:
            value[j] = gain[j]
        elif scale.score < ZERO_ONE:
            base += m + 1
            cells, rows, expected = _capture_change(
                rise, expected_rise, cell, cluster, classes, n_cell, sizes, taken, base, points, start[j], start[j] + length[j]
            )
            rows += phi[length[j]]
            expected += expected_of[length[j]] - expected_of[0]
            value[j] = gain[j] + gamma * sums_delta(scale, sums[0] + cells, sums[1] + rows, sums[2] + expected)
        else:
            captured = points[start[j] : start[j] + length[j]]
            value[j] = gain[j] + gamma * gathered_delta(margin, counts, captured, cluster, step, step + 1)
        best = max(best, value[j])
    taken.base[0] = base
    return best, end


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


@njit(cache=True, nogil=True, inline="always")
def _capture_change(
    rise: NDArray[np.float64],
    expected_rise: NDArray[np.float64],
    cell: NDArray[np.uint32],
    cluster: NDArray[np.uint32],
    classes: NDArray[np.uint32],
    n_cell: NDArray[np.uint32],
    sizes: NDArray[np.uint32],
    taken: Taken,
    base: int,
    points: NDArray[np.uint32],
    start: Index,
    stop: Index,
) -> tuple[float, float, float]:
    """How the three sums behind Δ change if points[start:stop] leave their clusters, for one that was empty."""
    _, of_cell, of_cluster, of_class = taken
    cells, rows, expected = 0.0, 0.0, 0.0
    for r in range(np.uint64(start), np.uint64(stop)):
        i = points[r]
        e, k, c = cell[i], cluster[i], classes[i]
        from_cell, from_cluster, from_class = max(of_cell[e], base), max(of_cluster[k], base), max(of_class[c], base)
        of_cell[e], of_cluster[k], of_class[c] = from_cell + 1, from_cluster + 1, from_class + 1
        cells += rise[np.uint64(from_class - base + 1)] - rise[np.uint64(n_cell[e] - (from_cell - base))]
        size = np.uint64(sizes[k] - (from_cluster - base))
        rows -= rise[size]
        expected -= expected_rise[size]
    return cells, rows, expected


@inner_kernel()
def best_place(selection: Selection, candidates: NDArray[np.int64], best: float) -> int:
    """The place of the best candidate, of the lowest index among equals."""
    value = selection.value
    goal = best - selection.tolerance
    place = -1
    for r in range(len(candidates)):
        if value[candidates[r]] >= goal and (place < 0 or candidates[r] < candidates[place]):
            place = r
    return place


@inner_kernel()
def capture(selection: Selection, j: int, step: int) -> None:
    """Make j a medoid: it gets the points on its list."""
    D, near, cluster, classes, counts = selection.D, selection.near, selection.cluster, selection.margin.classes, selection.counts
    if step == 0:
        near[:] = D[j]
        for c in range(len(selection.class_start) - 1):
            _find_cells(selection, c)
        return
    captured = selection.points[selection.start[j] : selection.start[j] + selection.length[j]]
    gather(selection.margin, counts, captured, cluster, step)
    for i in captured:
        cluster[i] = step
        near[i] = D[j, i]
    for i in captured:
        _find_cells(selection, classes[i])


@inner_kernel()
def _find_cells(selection: Selection, c: Index) -> None:
    """Name the cells of class c."""
    cell, n_cell, cluster = selection.cell, selection.n_cell, selection.cluster
    members = selection.class_members[selection.class_start[c] : selection.class_start[c + 1]]
    for i in members:
        n_cell[i] = 0
    for r in range(len(members)):
        i = members[r]
        cell[i] = i
        for other in members[:r]:
            if cluster[other] == cluster[i]:
                cell[i] = other
                break
        n_cell[cell[i]] += 1
