"""Algorithm 1 of the paper: loss-augmented inference by greedy selection, exact or on random samples of candidates.

Each step adds the point i with the best A(S ∪ {i}). As S grows, a point's distance to its medoid only falls, so the points
that a candidate could still capture only become fewer: each candidate keeps the list of them and shortens it at every
visit. One step then costs the sum of the lists, about m²/|S|, and the whole selection about m²·log|Y|.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.solver.margin import Counts, Margin, compiled_margin, count, delta, move, move_back
from facetric.solver.problem import ClusteringProblem


def greedy(problem: ClusteringProblem, *, prune: bool = True) -> NDArray[np.int64]:
    """The medoids of Algorithm 1 in order of selection. (n_clusters,)

    `prune` skips Δ for candidates that cannot win because Δ ≤ 1; it never changes the result.
    """
    return _select(problem, np.empty((problem.n_clusters, 0)), prune)


def stochastic_greedy(problem: ClusteringProblem, rng: np.random.Generator, *, epsilon: float = 1e-4) -> NDArray[np.int64]:
    """Algorithm 1 on a fresh random sample of (m/|Y|)·ln(1/ε) candidates per step (Mirzasoleiman et al. 2015).

    The default ε stays within 1% of the exact objective at m = 1024 and still takes a tenth of its time.
    """
    sample_size = math.ceil(problem.n_points / problem.n_clusters * math.log(1.0 / epsilon))
    sample_size = min(sample_size, problem.n_points)
    return _select(problem, rng.random((problem.n_clusters, sample_size)), True)


def random_medoids(problem: ClusteringProblem, rng: np.random.Generator) -> NDArray[np.int64]:
    """Distinct points at random: the initialization of the paper's ablation (Section on implementation details)."""
    return rng.permutation(problem.n_points)[: problem.n_clusters].astype(np.int64)


def _select(problem: ClusteringProblem, draws: NDArray[np.float64], prune: bool) -> NDArray[np.int64]:
    with compiled_margin(problem) as margin:
        medoids: NDArray[np.int64] = _greedy(
            problem.from_medoid,
            problem.classes,
            problem.n_clusters,
            problem.margin_weight,
            margin,
            problem.tolerance,
            draws,
            prune,
        )
    return medoids


@njit(cache=True, nogil=True)
def _greedy(
    D: NDArray[np.float64],
    classes: NDArray[np.int64],
    n_clusters: int,
    gamma: float,
    margin: Margin,
    tolerance: float,
    draws: NDArray[np.float64],
    prune: bool,
) -> NDArray[np.int64]:
    # Legend: D[j, i] distance of point i to medoid j; near[i] distance to its medoid in S, assignment[i] that medoid's
    # position; reach[j, :n_reach[j]] the points closer to j than to their medoid (j itself always); F, A as in the paper.
    m = len(D)
    sampled = draws.shape[1] > 0
    remaining = np.arange(m)  # V \ S, in any order
    medoids = np.empty(n_clusters, dtype=np.int64)
    F = np.empty(m)
    A = np.empty(m)
    reach = np.empty((m, m), dtype=np.int32)
    n_reach = np.full(m, -1)
    near = np.full(m, np.inf)
    assignment = np.zeros(m, dtype=np.int64)
    counts = count(margin, assignment, classes, n_clusters)

    for step in range(n_clusters):
        n_remaining = m - step
        n_candidates = n_remaining
        if sampled:
            n_candidates = min(draws.shape[1], n_remaining)
            for r in range(n_candidates):  # a partial Fisher-Yates shuffle: a sample without replacement
                other = r + int(draws[step, r] * (n_remaining - r))
                remaining[r], remaining[other] = remaining[other], remaining[r]
        candidates = remaining[:n_candidates]
        here = -near.sum() if step > 0 else 0.0

        most = -np.inf
        favorite = -1
        for j in candidates:
            if step == 0:
                F[j] = -D[j].sum()
            else:
                F[j] = here + _gain(D[j], near, j, reach[j], n_reach)
            if F[j] > most:
                most = F[j]
                favorite = j
        if step == 0:  # with a single cluster Δ is the same for all
            A[:] = F
            best = most
        else:  # the candidate with the best F first: it prunes most of the others
            A[favorite] = F[favorite] + gamma * _capture_delta(
                margin, counts, classes, assignment, reach, n_reach, favorite, step
            )
            best = A[favorite]
            for j in candidates:
                if j == favorite:
                    continue
                if prune and F[j] + gamma < best - tolerance:
                    A[j] = -np.inf
                    continue
                A[j] = F[j] + gamma * _capture_delta(margin, counts, classes, assignment, reach, n_reach, j, step)
                best = max(best, A[j])

        chosen = m
        place = -1
        for r in range(n_candidates):
            if A[candidates[r]] >= best - tolerance and candidates[r] < chosen:
                chosen = candidates[r]
                place = r
        medoids[step] = chosen
        remaining[place] = remaining[n_remaining - 1]
        if step == 0:
            near[:] = D[chosen]
        else:
            for i in reach[chosen, : n_reach[chosen]]:
                move(margin, counts, classes[i], assignment[i], step)
                assignment[i] = step
                near[i] = D[chosen, i]
    return medoids


@njit(cache=True, nogil=True)
def _gain(
    distance: NDArray[np.float64], near: NDArray[np.float64], j: int, reach: NDArray[np.int32], n_reach: NDArray[np.int64]
) -> float:
    """F(S ∪ {j}) − F(S); shortens j's list of points within reach on the way."""
    gain = 0.0
    n_kept = 0
    if n_reach[j] < 0:
        for i in range(len(near)):
            if distance[i] < near[i] or i == j:
                gain += near[i] - distance[i]
                reach[n_kept] = i
                n_kept += 1
    else:
        for r in range(n_reach[j]):
            i = reach[r]
            if distance[i] < near[i] or i == j:
                gain += near[i] - distance[i]
                reach[n_kept] = i
                n_kept += 1
    n_reach[j] = n_kept
    return gain


@njit(cache=True, nogil=True)
def _capture_delta(
    margin: Margin,
    counts: Counts,
    classes: NDArray[np.int64],
    assignment: NDArray[np.int64],
    reach: NDArray[np.int32],
    n_reach: NDArray[np.int64],
    j: int,
    new_cluster: int,
) -> float:
    """Δ(g(S ∪ {j}), y*): all points within j's reach move to the new cluster, and back."""
    cells, rows, expected = counts.sums[0], counts.sums[1], counts.sums[2]
    captured = reach[j, : n_reach[j]]
    for i in captured:
        move(margin, counts, classes[i], assignment[i], new_cluster)
    value = delta(margin, counts, new_cluster + 1)
    for i in captured:
        move_back(counts, classes[i], assignment[i], new_cluster)
    counts.sums[0], counts.sums[1], counts.sums[2] = cells, rows, expected
    return value
