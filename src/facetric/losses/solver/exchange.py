"""Refinement of S by exchanging medoids: Algorithm 2 of the paper (PAM) and the local search of its Lemma 2.

Both visit the positions k of S in turn and replace S[k] by the best candidate; they differ in the candidates and in F:

* PAM takes the members of cluster k and scores F on the sweep's fixed clusters, Δ on the reassignment (Lemma 1: A(S) never
  falls from sweep to sweep);
* local search takes every point and scores the true A(S), so that it ends where no single exchange helps (Lemma 2).

A medoid is replaced only by a strictly better one, the lowest index among equals.

The true F with S[k] replaced by j is kept apart as in FasterPAM (Schubert and Rousseeuw 2021): the score with j added to S, which
does not depend on k, less what the points of cluster k lose with S[k]. A sweep over all exchanges takes O(m²), not O(k·m²).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.losses.solver.compiled import Distances, Threads, inner_kernel, use_threads
from facetric.losses.solver.margin import Counts, Margin, compiled_margin, count, delta, gather, gathered_delta, scatter
from facetric.losses.solver.nearest import Nearest, find_won, nearest_medoids, put_back, put_in, remove
from facetric.losses.solver.problem import ClusteringProblem, Solution, solution_of


def pam(
    problem: ClusteringProblem, medoids: NDArray[np.int64], *, max_sweeps: int = 5, threads: Threads | int | None = None
) -> Solution:
    """Algorithm 2: at most T = `max_sweeps` sweeps, fewer when one changes nothing."""
    return _refine(problem, medoids, max_sweeps, threads, everywhere=False)


def local_search(problem: ClusteringProblem, medoids: NDArray[np.int64], *, threads: Threads | int | None = None) -> Solution:
    """Lemma 2: sweeps over all exchanges with points of X until none of them raises A(S)."""
    return _refine(problem, medoids, int(np.iinfo(np.int64).max), threads, everywhere=True)


class _State(NamedTuple):
    """S, and what the sweeps need to change it."""

    D: Distances  # (m, m) row j: the distance of every point to medoid j
    by_point: Distances  # (m, m) row i: the distance of point i to every medoid
    gamma: float
    margin: Margin
    tolerance: float
    medoids: NDArray[np.int64]  # (n_clusters,) S
    nearest: Nearest
    counts: Counts  # of the clustering that `nearest` is


def _refine(
    problem: ClusteringProblem, medoids: NDArray[np.int64], max_sweeps: int, threads: Threads | int | None, *, everywhere: bool
) -> Solution:
    with compiled_margin(problem) as margin, use_threads(threads) as crew:
        nearest = nearest_medoids(problem, medoids, crew)
        state = _State(
            D=problem.from_medoid,
            by_point=problem.distances,
            gamma=problem.margin_weight,
            margin=margin,
            tolerance=problem.tolerance,
            medoids=medoids.copy(),
            nearest=nearest,
            counts=count(margin, nearest.first, len(medoids)),
        )
        trace = sweeps(state, everywhere, max_sweeps)
    return solution_of(problem, state.medoids, nearest.first.astype(np.int64), tuple(trace))


@njit(cache=True, nogil=True)
def sweeps(state: _State, everywhere: bool, max_sweeps: int) -> list[float]:
    """Sweep until nothing changes; A(S) before and after each sweep."""
    trace = [_objective(state)]
    changed = True
    while changed and len(trace) <= max_sweeps:
        changed = _sweep(state, everywhere)
        trace.append(_objective(state))
    return trace


@inner_kernel()
def _objective(state: _State) -> float:
    """A(S)."""
    score = 0.0
    for distance in state.nearest.first_distance:
        score -= max(distance, 0.0)
    return score + (state.gamma * delta(state.margin, state.counts, len(state.medoids)) if state.gamma > 0.0 else 0.0)


@inner_kernel()
def _sweep(state: _State, everywhere: bool) -> bool:
    """Offer every medoid in turn to be exchanged; whether any was."""
    # Legend: k a position in S; F, A, γ as in the paper.
    D, medoids, margin, counts, gamma = state.D, state.medoids, state.margin, state.counts, state.gamma
    nearest = state.nearest
    counted = gamma > 0.0 and len(medoids) > 1
    m = len(D)
    members, starts = _group(nearest.first, len(medoids))
    is_medoid = np.zeros(m, np.bool_)
    for j in medoids:
        is_medoid[j] = True
    F, A = np.empty(m), np.empty(m)
    served, added = np.zeros(m), np.zeros(m)  # the cost of every point, and of all points with another medoid j
    if everywhere:
        _account(nearest, state.by_point, served, added)
    orphans, won = np.empty(m, np.uint32), np.empty(m, np.uint32)  # space for lists of points
    margin_now = delta(margin, counts, len(medoids)) if gamma > 0.0 else 0.0
    changed = False
    for k in range(len(medoids)):
        current = medoids[k]
        sums = counts.sums[0], counts.sums[1], counts.sums[2]
        n_orphans = remove(nearest, k, orphans)
        if counted:
            scatter(margin, counts, orphans[:n_orphans], k, nearest.second)
        if everywhere:
            is_medoid[current] = False
            candidates = np.flatnonzero(~is_medoid)  # ascending
            F[:] = -added
            for i in orphans[:n_orphans]:
                _raise_limit(state.by_point[i], served[i], nearest.first_distance[i], F)
        else:
            candidates = members[starts[k] : starts[k + 1]]
            for j in candidates:
                F[j] = _cluster_facility_score(D[j], candidates)
        A[current] = F[current] + gamma * margin_now
        best = _evaluate(state, k, candidates, won, F, A)
        chosen = current
        if best > A[current] + state.tolerance:
            for j in candidates:  # in ascending order: the lowest index among equals
                if A[j] >= best - state.tolerance:
                    chosen = j
                    break
        if chosen == current:
            put_back(nearest, D[current], current, k, orphans[:n_orphans])
            if counted:
                gather(margin, counts, orphans[:n_orphans], nearest.second, k)
                counts.sums[0], counts.sums[1], counts.sums[2] = sums
        else:
            medoids[k] = chosen
            n_won = find_won(nearest, D[chosen], chosen, k, won)
            if counted:
                gather(margin, counts, won[:n_won], nearest.first, k)
                margin_now = delta(margin, counts, len(medoids))
            put_in(nearest, D[chosen], state.by_point, medoids, k, orphans[:n_orphans], won[:n_won])
            if everywhere:
                _account(nearest, state.by_point, served, added)
            changed = True
        is_medoid[chosen] = True
    return changed


@inner_kernel()
def _group(clusters: NDArray[np.uint32], n_clusters: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Points by cluster, ascending inside each: cluster k is members[starts[k] : starts[k + 1]]."""
    starts = np.zeros(n_clusters + 1, dtype=np.int64)
    for k in clusters:
        starts[k + 1] += 1
    for k in range(n_clusters):
        starts[k + 1] += starts[k]
    fill = starts.copy()
    members = np.empty(len(clusters), dtype=np.int64)
    for i in range(len(clusters)):
        members[fill[clusters[i]]] = i
        fill[clusters[i]] += 1
    return members, starts


@inner_kernel()
def _cluster_facility_score(distance: Distances, members: NDArray[np.int64]) -> float:
    score = 0.0
    for i in members:
        score -= distance[i]
    return score


@inner_kernel()
def _account(nearest: Nearest, by_point: Distances, served: NDArray[np.float64], added: NDArray[np.float64]) -> None:
    """Follow the points whose cost has changed: served[i] = d(i, S), added[j] = Σ_i min(d(i, j), d(i, S))."""
    for i in range(len(served)):
        cost = max(np.float64(nearest.first_distance[i]), 0.0)
        if cost != served[i]:
            distance, before = by_point[i], served[i]
            for j in range(len(added)):
                added[j] += min(distance[j], cost) - min(distance[j], before)
            served[i] = cost


@inner_kernel()
def _raise_limit(distance: Distances, low: float, high: float, F: NDArray[np.float64]) -> None:
    """A point at this distance from every candidate may now cost up to high, where it could cost up to low."""
    for j in range(len(F)):
        F[j] -= min(distance[j], high) - min(distance[j], low)


@inner_kernel()
def _evaluate(
    state: _State, k: int, candidates: NDArray[np.int64], won: NDArray[np.uint32], F: NDArray[np.float64], A: NDArray[np.float64]
) -> float:
    """Find A with each candidate as medoid k, −inf where Δ ≤ 1 says that it cannot win; the best."""
    D, margin, counts, nearest, gamma = state.D, state.margin, state.counts, state.nearest, state.gamma
    n_clusters, current = len(state.medoids), state.medoids[k]
    best = A[current]
    for j in candidates:
        if j == current:
            continue
        A[j] = -np.inf
        if F[j] + gamma < best - state.tolerance:
            continue
        if gamma == 0.0:
            A[j] = F[j]
        elif n_clusters == 1:  # Δ is the same for all
            A[j] = F[j] + A[current] - F[current]
        else:
            n_won = find_won(nearest, D[j], j, k, won)
            A[j] = F[j] + gamma * gathered_delta(margin, counts, won[:n_won], nearest.first, k, n_clusters)
        best = max(best, A[j])
    return float(best)
