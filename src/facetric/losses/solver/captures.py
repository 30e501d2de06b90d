"""What every point would capture as the next medoid of Algorithm 1, followed as S grows; and what A would become.

A candidate captures the points closer to it than to their medoid, and itself. For each candidate the solver keeps its gain in F
and what its capture would add to the sums behind Δ. A new medoid changes the distance to their medoid for the points that it
captures, and for no others: their rows of distances are read again, and of the sums only the terms of their old clusters and of
their classes are computed anew. Each loop runs over a range of candidates, several in one instruction; ranges are independent of
each other, so they can be spread over threads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.losses.solver.compiled import Distances, Index, find_within, inner_kernel, total
from facetric.losses.solver.margin import CELLS, EXPECTED, ROWS, Counts, Margin, Scale, count, gather, sums_delta
from facetric.losses.solver.problem import ClusteringProblem
from facetric.metrics.kernels import AMI

Numbers = NDArray[np.unsignedinteger]  # of points; as narrow as the size of the batch allows


class Captures(NamedTuple):
    """S so far, and what every candidate j would make of it."""

    by_point: Distances  # (m, m) row i: the distance of point i to every candidate
    gamma: float
    margin: Margin
    counts: Counts  # of S
    near: Distances  # (m,) a point's distance to its medoid, and what it was before the last step
    before: Distances  # (m,)
    cluster: NDArray[np.uint32]  # (m,) the position of that medoid in S
    class_members: NDArray[np.uint32]  # (m,) the points, class by class
    class_start: NDArray[np.int64]  # (n_classes + 1,) where a class starts in it
    inside: NDArray[np.uint8]  # (m, m) [i, j]: 1 if j would capture i
    taken: Numbers  # (n_clusters, m) how many points j would take from each cluster
    n_captured: Numbers  # (m,) and in all
    class_term: NDArray[np.float64]  # (n_classes, m) what the capture would add to Σφ(cells) of each class
    cells: NDArray[np.float64]  # (m,) and in all
    rows: NDArray[np.float64]  # (m,) what it would add to Σφ(sizes) of the clusters of S
    expected: NDArray[np.float64]  # (m,) and to their Σexpected(sizes), AMI only
    gain: NDArray[np.float64]  # (m,) F(S ∪ {j}) − F(S); −inf for a medoid
    value: NDArray[np.float64]  # (m,) A(S ∪ {j}) − F(S)


class Capture(NamedTuple):
    """The points that the last medoid has captured."""

    points: NDArray[np.uint32]  # cluster by cluster …
    clusters: NDArray[np.uint32]  # … of these clusters …
    ends: NDArray[np.int64]  # … whose points end here
    classes: NDArray[np.uint32]  # the classes among them


def no_captures(problem: ClusteringProblem, margin: Margin) -> Captures:
    """Before the first medoid."""
    m, n_clusters, dtype = problem.n_points, problem.n_clusters, problem.distances.dtype
    number = np.uint16 if m < 2**16 else np.uint32
    cluster = np.zeros(m, np.uint32)
    return Captures(
        by_point=problem.distances,
        gamma=problem.margin_weight,
        margin=margin,
        counts=count(margin, cluster, n_clusters),
        near=np.empty(m, dtype),
        before=np.empty(m, dtype),
        cluster=cluster,
        class_members=np.argsort(problem.classes, kind="stable").astype(np.uint32),
        class_start=np.concatenate([[0], np.bincount(problem.classes).cumsum()]),
        inside=np.zeros((m, m), np.uint8),
        taken=np.empty((n_clusters, m), number),
        n_captured=np.zeros(m, number),
        class_term=np.zeros((n_clusters, m)),
        cells=np.zeros(m),
        rows=np.zeros(m),
        expected=np.zeros(m),
        gain=np.zeros(m),
        value=np.empty(m),
    )


@njit(cache=True, nogil=True)
def first_values(D: Distances, value: NDArray[np.float64]) -> float:
    """F of every candidate alone, with which Δ is the same for all. The best."""
    best = -np.inf
    for j in range(len(value)):
        value[j] = -total(D[j])
        best = max(best, value[j])
    return best


@njit(cache=True, nogil=True)
def first_of_the_best(value: NDArray[np.float64], best: float, tolerance: float) -> int:
    """The lowest candidate among those that are equal to the best."""
    j = 0
    while value[j] < best - tolerance:
        j += 1
    return j


@njit(cache=True, nogil=True)
def make_medoid(captures: Captures, distance: Distances, medoid: int, position: int) -> Capture:
    """Make a point, at this distance from all, the next medoid: it gets what it can capture."""
    near, before, cluster, counts = captures.near, captures.before, captures.cluster, captures.counts
    classes = captures.margin.classes
    captures.gain[medoid] = -np.inf
    m, n_clusters = len(near), len(counts.sizes)
    found, n_found = np.empty(m, np.uint32), 0
    if position == 0:
        for j in range(m):
            near[j], before[j], found[j] = distance[j], 0.0, j
        n_found = m
    else:
        for i in found[: find_within(distance, near, found)]:
            if distance[i] < near[i] or i == medoid:
                before[i], near[i] = near[i], distance[i]
                found[n_found] = i
                n_found += 1
    end, has_class = np.zeros(n_clusters + 1, np.int64), np.zeros(n_clusters, np.bool_)
    for i in found[:n_found]:
        end[cluster[i] + 1] += 1
        has_class[classes[i]] = True
    clusters, n_left = np.empty(n_clusters, np.uint32), 0
    of_class, n_classes = np.empty(n_clusters, np.uint32), 0
    for k in range(n_clusters):
        if end[k + 1] > 0:
            clusters[n_left] = k
            n_left += 1
        if has_class[k]:
            of_class[n_classes] = k
            n_classes += 1
        end[k + 1] += end[k]
    points, ends = np.empty(n_found, np.uint32), np.empty(n_left, np.int64)
    for i in found[:n_found]:
        points[end[cluster[i]]] = i
        end[cluster[i]] += 1
    for r in range(n_left):
        ends[r] = end[clusters[r]]
    if position > 0:
        gather(captures.margin, counts, points, cluster, position)
        for i in points:
            cluster[i] = position
    return Capture(points, clusters[:n_left], ends, of_class[:n_classes])


@njit(cache=True, nogil=True)
def follow(captures: Captures, captured: Capture, position: int, first: int, last: int) -> float:
    """After a capture by the medoid at this position: the values of the candidates first … last − 1. The best of them."""
    # every array is taken out of its tuple before the loops: inside them that would count references
    gamma, by_point, near, before, inside = captures.gamma, captures.by_point, captures.near, captures.before, captures.inside
    margin, counts, taken = captures.margin, captures.counts, captures.taken
    phi, expected_of, scale = margin.phi, margin.expected, margin.scale
    value, gain, n_captured = captures.value[first:last], captures.gain[first:last], captures.n_captured[first:last]
    cells, rows, expected = captures.cells[first:last], captures.rows[first:last], captures.expected[first:last]
    has_expected = scale.score == AMI
    zeros = np.zeros_like(n_captured)
    old, new = np.empty_like(n_captured), taken[position, first:last]
    new[:] = 0
    start: Index = np.int64(0)
    for r in range(len(captured.clusters)):
        k, stop = captured.clusters[r], captured.ends[r]
        points, left = captured.points[start:stop], taken[k, first:last]
        _copy(left, old)
        if position > 0:
            for i in points:
                _subtract(inside[i, first:last], left)
        for i in points:
            _move(by_point[i, first:last], np.int64(i) - first, before[i], near[i], inside[i, first:last], new, gain)
        if position > 0:
            size = counts.sizes[k]
            _add(left, n_captured)
            _subtract(old, n_captured)
            _change_terms(phi, size + len(points), old, size, left, rows)
            if has_expected:
                _change_terms(expected_of, size + len(points), old, size, left, expected)
        start = stop
    _add(new, n_captured)
    _change_terms(phi, 0, zeros, counts.sizes[position], new, rows)
    if has_expected:
        _change_terms(expected_of, 0, zeros, counts.sizes[position], new, expected)
    if gamma > 0.0:
        _follow_classes(captures, captured.classes, first, last)
    _find_values(scale, gamma, phi, expected_of, counts.sums, n_captured, cells, rows, expected, gain, value)
    best = -np.inf
    for each in value:
        best = max(best, each)
    return best


@inner_kernel()
def _move(
    distance: Distances,
    own: Index,
    before: float,
    near: float,
    inside: NDArray[np.uint8],
    taken: Numbers,
    gain: NDArray[np.float64],
) -> None:
    """A point, itself the candidate `own`, has come nearer to its medoid, in a new cluster: who would still capture it?"""
    for j in range(len(distance)):
        inside[j] = distance[j] < near
    if 0 <= own < len(distance):
        inside[own] = 1
    _add(inside, taken)
    old_distance, new_distance = np.float64(before), np.float64(near)
    for j in range(len(distance)):
        d = np.float64(distance[j])
        gain[j] += max(new_distance - d, 0.0) - max(old_distance - d, 0.0)


@inner_kernel()
def _change_terms(
    phi: NDArray[np.float64], old_size: Index, old: Numbers, size: Index, taken: Numbers, total: NDArray[np.float64]
) -> None:
    """φ(size − taken) − φ(size), what a capture changes in a cluster's or a cell's term, instead of what it was."""
    old_size, size = np.int64(old_size), np.int64(size)
    whole = phi[old_size] - phi[size]
    for j in range(len(total)):
        total[j] += whole + (phi[np.uint64(size - taken[j])] - phi[np.uint64(old_size - old[j])])


@inner_kernel()
def _follow_classes(captures: Captures, classes: NDArray[np.uint32], first: int, last: int) -> None:
    """What a capture would add to Σφ(cells) of these classes: φ of what it takes, less what its cells lose."""
    cluster, inside, phi, cells = captures.cluster, captures.inside, captures.margin.phi, captures.cells[first:last]
    from_class, from_cell = np.empty_like(captures.n_captured[first:last]), np.empty_like(captures.n_captured[first:last])
    loss = np.empty(last - first)
    for c in classes:
        members, term = (
            captures.class_members[captures.class_start[c] : captures.class_start[c + 1]],
            captures.class_term[c, first:last],
        )
        from_class[:] = 0
        loss[:] = 0.0
        for r in range(len(members)):
            k, n_before, n = cluster[members[r]], 0, 0
            for i in members[:r]:
                n_before += cluster[i] == k
            for i in members[r:]:
                n += cluster[i] == k
            if n_before > 0:  # this cell has been seen
                continue
            if n == 1:  # φ(1) = φ(0)
                _add(inside[members[r], first:last], from_class)
                continue
            from_cell[:] = 0
            for i in members[r:]:
                if cluster[i] == k:
                    _add(inside[i, first:last], from_cell)
            _add(from_cell, from_class)
            for j in range(len(loss)):
                loss[j] += phi[n] - phi[np.uint64(n - from_cell[j])]
        for j in range(len(term)):
            now = phi[from_class[j]] - loss[j]
            cells[j] += now - term[j]
            term[j] = now


@inner_kernel()
def _find_values(
    scale: Scale,
    gamma: float,
    phi: NDArray[np.float64],
    expected_of: NDArray[np.float64],
    sums: NDArray[np.float64],
    n_captured: Numbers,
    cells: NDArray[np.float64],
    rows: NDArray[np.float64],
    expected: NDArray[np.float64],
    gain: NDArray[np.float64],
    value: NDArray[np.float64],
) -> None:
    cells_now, rows_now, expected_now = sums[CELLS], sums[ROWS], sums[EXPECTED] - expected_of[0]
    for j in range(len(value)):
        value[j] = rows[j] + phi[n_captured[j]]
    if scale.score == AMI:
        for j in range(len(value)):
            expected_then = expected_now + (expected[j] + expected_of[n_captured[j]])
            delta = sums_delta(scale, cells_now + cells[j], rows_now + value[j], expected_then)
            value[j] = gain[j] + gamma * delta
    else:
        for j in range(len(value)):
            value[j] = gain[j] + gamma * sums_delta(scale, cells_now + cells[j], rows_now + value[j], 0.0)


@inner_kernel()
def _add(numbers: Numbers, total: Numbers) -> None:
    for j in range(len(total)):
        total[j] += numbers[j]


@inner_kernel()
def _subtract(numbers: Numbers, total: Numbers) -> None:
    for j in range(len(total)):
        total[j] -= numbers[j]


@inner_kernel()
def _copy(numbers: Numbers, copy: Numbers) -> None:
    for j in range(len(copy)):
        copy[j] = numbers[j]
