"""Refinement of S by exchanging medoids: Algorithm 2 of the paper (PAM) and the local search of its Lemma 2.

Both visit the positions k of S in turn and replace S[k] by the best candidate; they differ in the candidates and in F:

* PAM takes the members of cluster k and scores F on the sweep's fixed clusters, Δ on the reassignment (Lemma 1: A(S) never
  falls from sweep to sweep);
* local search takes every point and scores the true A(S), so that it ends where no single exchange helps (Lemma 2).

A medoid is replaced only by a strictly better one, the lowest index among equals.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.solver.margin import Counts, Margin, compiled_margin, count, delta, move, move_back
from facetric.solver.problem import ClusteringProblem

_OWN = -1.0  # a medoid's distance to itself for the purpose of assignment: nearer than any duplicate


class Refined(NamedTuple):
    """Medoids after refinement, how many sweeps it took, and A(S) before them and after each."""

    medoids: NDArray[np.int64]
    n_sweeps: int
    trace: tuple[float, ...]


def pam(problem: ClusteringProblem, medoids: NDArray[np.int64], *, max_sweeps: int = 5, prune: bool = True) -> Refined:
    """Algorithm 2: at most T = `max_sweeps` sweeps, fewer when one changes nothing."""
    return _refine(problem, medoids, max_sweeps, prune, everywhere=False)


def local_search(problem: ClusteringProblem, medoids: NDArray[np.int64], *, prune: bool = True) -> Refined:
    """Lemma 2: sweeps over all exchanges with points of X until none of them raises A(S)."""
    return _refine(problem, medoids, int(np.iinfo(np.int64).max), prune, everywhere=True)


def _refine(problem: ClusteringProblem, medoids: NDArray[np.int64], max_sweeps: int, prune: bool, *, everywhere: bool) -> Refined:
    with compiled_margin(problem) as margin:
        refined, trace = _exchange_sweeps(
            problem.from_medoid,
            problem.classes,
            medoids,
            problem.margin_weight,
            margin,
            problem.tolerance,
            max_sweeps,
            everywhere,
            prune,
        )
    return Refined(refined, len(trace) - 1, tuple(trace))


class _Nearest(NamedTuple):
    """For each point the positions of its nearest and second nearest medoid, and the distances that ranked them."""

    first: NDArray[np.int64]
    first_distance: NDArray[np.float64]
    second: NDArray[np.int64]
    second_distance: NDArray[np.float64]


@njit(cache=True, nogil=True)
def _exchange_sweeps(
    D: NDArray[np.float64],
    classes: NDArray[np.int64],
    initial: NDArray[np.int64],
    gamma: float,
    margin: Margin,
    tolerance: float,
    max_sweeps: int,
    everywhere: bool,
    prune: bool,
) -> tuple[NDArray[np.int64], list[float]]:
    # Legend: D[j, i] distance of point i to medoid j; F, A, γ as in the paper; k a position in S = medoids.
    m = len(D)
    n_clusters = len(initial)
    medoids = initial.copy()
    is_medoid = np.zeros(m, dtype=np.bool_)
    is_medoid[medoids] = True
    nearest = _Nearest(np.empty(m, np.int64), np.empty(m), np.empty(m, np.int64), np.empty(m))
    for i in range(m):
        _rank(D, medoids, nearest, i)
    counts = count(margin, nearest.first, classes, n_clusters)
    rival = np.empty(m, dtype=np.int64)  # position of the nearest medoid other than k
    rival_distance = np.empty(m)
    F = np.empty(m)
    A = np.empty(m)

    trace = [_facility_score(nearest) + gamma * delta(margin, counts, n_clusters)]
    sweep = 0
    while sweep < max_sweeps:
        sweep += 1
        changed = False
        members, starts = _group(nearest.first, n_clusters)
        for k in range(n_clusters):
            _remove(margin, counts, classes, nearest, k, rival, rival_distance)
            if everywhere:
                candidates = np.flatnonzero(~is_medoid | (np.arange(m) == medoids[k]))
                for j in candidates:
                    F[j] = _true_facility_score(D[j], rival_distance)
            else:
                candidates = members[starts[k] : starts[k + 1]]
                for j in candidates:
                    F[j] = _cluster_facility_score(D[j], candidates)

            current = medoids[k]
            A[current] = F[current] + gamma * _exchange_delta(
                margin, counts, classes, D[current], rival, rival_distance, k, current
            )
            best = A[current]
            for j in candidates:
                if j == current:
                    continue
                if prune and F[j] + gamma < best - tolerance:
                    A[j] = -np.inf
                    continue
                A[j] = F[j] + gamma * _exchange_delta(margin, counts, classes, D[j], rival, rival_distance, k, int(j))
                best = max(best, A[j])
            if best > A[current] + tolerance:
                for j in candidates:  # in ascending order: the lowest index among equals
                    if A[j] >= best - tolerance:
                        is_medoid[current], is_medoid[j] = False, True
                        medoids[k] = j
                        changed = True
                        break
            _insert(margin, counts, classes, D, medoids, nearest, k, rival, rival_distance)
        trace.append(_facility_score(nearest) + gamma * delta(margin, counts, n_clusters))
        if not changed:
            break
    return medoids, trace


@njit(cache=True, nogil=True)
def _rank(D: NDArray[np.float64], medoids: NDArray[np.int64], nearest: _Nearest, i: int) -> None:
    """Find point i's two nearest medoids; of equal distances the first position wins, a medoid prefers itself."""
    first, second = -1, -1
    first_distance, second_distance = np.inf, np.inf
    for k in range(len(medoids)):
        distance = _OWN if medoids[k] == i else D[medoids[k], i]
        if distance < first_distance:
            second, second_distance = first, first_distance
            first, first_distance = k, distance
        elif distance < second_distance:
            second, second_distance = k, distance
    nearest.first[i], nearest.first_distance[i] = first, first_distance
    nearest.second[i], nearest.second_distance[i] = second, second_distance


@njit(cache=True, nogil=True)
def _group(assignment: NDArray[np.int64], n_clusters: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Points by cluster, ascending inside each: cluster k is members[starts[k] : starts[k + 1]]."""
    starts = np.zeros(n_clusters + 1, dtype=np.int64)
    for k in assignment:
        starts[k + 1] += 1
    starts = np.cumsum(starts)
    fill = starts[:-1].copy()
    members = np.empty(len(assignment), dtype=np.int64)
    for i in range(len(assignment)):
        members[fill[assignment[i]]] = i
        fill[assignment[i]] += 1
    return members, starts


@njit(cache=True, nogil=True)
def _facility_score(nearest: _Nearest) -> float:
    score = 0.0
    for distance in nearest.first_distance:
        score -= max(distance, 0.0)
    return score


@njit(cache=True, nogil=True)
def _cluster_facility_score(distance: NDArray[np.float64], members: NDArray[np.int64]) -> float:
    score = 0.0
    for i in members:
        score -= distance[i]
    return score


@njit(cache=True, nogil=True)
def _true_facility_score(distance: NDArray[np.float64], rival_distance: NDArray[np.float64]) -> float:
    score = 0.0
    for i in range(len(distance)):
        score -= max(min(distance[i], rival_distance[i]), 0.0)
    return score


@njit(cache=True, nogil=True)
def _remove(
    margin: Margin,
    counts: Counts,
    classes: NDArray[np.int64],
    nearest: _Nearest,
    k: int,
    rival: NDArray[np.int64],
    rival_distance: NDArray[np.float64],
) -> None:
    """Take medoid k away: everybody's rival is the nearest other medoid, and the counts follow (unless there is none)."""
    for i in range(len(rival)):
        if nearest.first[i] == k:
            rival[i], rival_distance[i] = nearest.second[i], nearest.second_distance[i]
            if rival[i] >= 0:
                move(margin, counts, classes[i], k, rival[i])
        else:
            rival[i], rival_distance[i] = nearest.first[i], nearest.first_distance[i]


@njit(cache=True, nogil=True, inline="always")
def _joins(distance: float, rival_distance: float, k: int, rival: int) -> bool:
    return distance < rival_distance or (distance == rival_distance and k < rival)


@njit(cache=True, nogil=True)
def _exchange_delta(
    margin: Margin,
    counts: Counts,
    classes: NDArray[np.int64],
    distance: NDArray[np.float64],
    rival: NDArray[np.int64],
    rival_distance: NDArray[np.float64],
    k: int,
    j: int,
) -> float:
    """Δ with point j as medoid k: the points that j wins from their rivals move to cluster k, and back."""
    if rival[j] < 0:  # a single cluster: nothing moves
        return delta(margin, counts, 1)
    cells, rows, expected = counts.sums[0], counts.sums[1], counts.sums[2]
    won = np.empty(len(distance), dtype=np.int64)
    n_won = 0
    for i in range(len(distance)):
        if i == j or _joins(distance[i], rival_distance[i], k, rival[i]):
            won[n_won] = i
            n_won += 1
            move(margin, counts, classes[i], rival[i], k)
    value = delta(margin, counts, len(counts.sizes))
    for i in won[:n_won]:
        move_back(counts, classes[i], rival[i], k)
    counts.sums[0], counts.sums[1], counts.sums[2] = cells, rows, expected
    return value


@njit(cache=True, nogil=True)
def _insert(
    margin: Margin,
    counts: Counts,
    classes: NDArray[np.int64],
    D: NDArray[np.float64],
    medoids: NDArray[np.int64],
    nearest: _Nearest,
    k: int,
    rival: NDArray[np.int64],
    rival_distance: NDArray[np.float64],
) -> None:
    """Put medoid k (old or new) back: update counts and everybody's two nearest medoids."""
    j = medoids[k]
    for i in range(len(rival)):
        distance = _OWN if i == j else D[j, i]
        if nearest.first[i] == k or nearest.second[i] == k:
            _rank(D, medoids, nearest, i)
        elif _joins(distance, nearest.first_distance[i], k, nearest.first[i]):
            nearest.second[i], nearest.second_distance[i] = nearest.first[i], nearest.first_distance[i]
            nearest.first[i], nearest.first_distance[i] = k, distance
        elif _joins(distance, nearest.second_distance[i], k, nearest.second[i]):
            nearest.second[i], nearest.second_distance[i] = k, distance
        if nearest.first[i] == k and rival[i] >= 0:
            move(margin, counts, classes[i], rival[i], k)
