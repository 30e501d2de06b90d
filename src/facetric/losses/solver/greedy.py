"""Algorithm 1 of the paper: loss-augmented inference by greedy selection, exact or on random samples of candidates.

Each step adds the point j with the best A(S ∪ {j}), the lowest among equals. There are two ways to find it, with the same result:
what all candidates would capture is followed from step to step (captures.py), or candidates are evaluated one by one, except
those that cannot win (candidates.py): for samples, for a small γ, with which few can win, and for scores that need the whole
table.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.losses.solver.candidates import Selection, Taken, best_place, capture, evaluate, find_favorite
from facetric.losses.solver.captures import Captures, first_of_the_best, first_values, follow, make_medoid, no_captures
from facetric.losses.solver.compiled import Distances, Index, Threads, use_threads
from facetric.losses.solver.margin import Margin, compiled_margin, count
from facetric.losses.solver.problem import ClusteringProblem
from facetric.metrics.kernels import ZERO_ONE

_LONG_STEP = 200_000  # captured points times candidates; so many are worth several threads
_SMALL_MARGIN = 0.01  # γ per point, in units of the largest distance; up to here it is faster to exclude candidates


def greedy(problem: ClusteringProblem, *, threads: Threads | int | None = None) -> NDArray[np.int64]:
    """The medoids of Algorithm 1 in order of selection; the number of threads never changes them. (n_clusters,)"""
    with compiled_margin(problem) as margin, use_threads(threads) as crew:
        if margin.scale.score < ZERO_ONE and problem.margin_weight > _SMALL_MARGIN * problem.n_points * problem.largest_distance:
            return _follow_all(problem, margin, crew)
        return _select(problem, margin, np.empty((problem.n_clusters, 0)))


def stochastic_greedy(problem: ClusteringProblem, rng: np.random.Generator, *, epsilon: float = 1e-4) -> NDArray[np.int64]:
    """Algorithm 1 on a fresh random sample of (m/|Y|)·ln(1/ε) candidates per step (Mirzasoleiman et al. 2015)."""
    sample_size = math.ceil(problem.n_points / problem.n_clusters * math.log(1.0 / epsilon))
    sample_size = min(sample_size, problem.n_points)
    with compiled_margin(problem) as margin:
        return _select(problem, margin, rng.random((problem.n_clusters, sample_size)))


def random_medoids(problem: ClusteringProblem, rng: np.random.Generator) -> NDArray[np.int64]:
    """Distinct points at random: the initialization of the paper's ablation (Section on implementation details)."""
    return rng.permutation(problem.n_points)[: problem.n_clusters].astype(np.int64)


def _follow_all(problem: ClusteringProblem, margin: Margin, crew: Threads) -> NDArray[np.int64]:
    D, m, tolerance = problem.from_medoid, problem.n_points, problem.tolerance
    captures, medoids = no_captures(problem, margin), np.empty(problem.n_clusters, np.int64)
    best, position = first_values(D, captures.value), 0
    n_captured = m
    while crew.n_threads > 1 and n_captured * m >= _LONG_STEP and position + 1 < len(medoids):  # the first steps are the longest
        medoids[position] = first_of_the_best(captures.value, best, tolerance)
        captured = make_medoid(captures, D[medoids[position]], medoids[position], position)
        best = max(crew.run(partial(follow, captures, captured, position), m))
        n_captured = len(captured.points)
        position += 1
    _follow_steps(captures, D, tolerance, medoids, position, best)
    return medoids


@njit(cache=True, nogil=True)
def _follow_steps(
    captures: Captures, D: Distances, tolerance: float, medoids: NDArray[np.int64], position: int, best: float
) -> None:
    """All steps from this position on."""
    m = len(D)
    while True:
        medoid = first_of_the_best(captures.value, best, tolerance)
        medoids[position] = medoid
        if position + 1 == len(medoids):
            return
        captured = make_medoid(captures, D[medoid], medoid, position)
        best = follow(captures, captured, position, 0, m)
        position += 1


def _select(problem: ClusteringProblem, margin: Margin, draws: NDArray[np.float64]) -> NDArray[np.int64]:
    D, m = problem.from_medoid, problem.n_points
    medoids, cluster = np.empty(problem.n_clusters, np.int64), np.zeros(m, np.uint32)
    selection = Selection(
        D=D,
        gamma=problem.margin_weight,
        margin=margin,
        tolerance=problem.tolerance,
        counts=count(margin, cluster, problem.n_clusters),
        near=np.empty(m, D.dtype),
        cluster=cluster,
        cell=np.empty(m, np.uint32),
        n_cell=np.empty(m, np.uint32),
        class_members=np.argsort(problem.classes, kind="stable").astype(np.uint32),
        class_start=np.concatenate([[0], np.bincount(problem.classes).cumsum()]),
        remaining=np.arange(m),
        value=np.empty(m),
        length=np.full(m, -1),
        start=np.empty(m, np.int64),
        points=np.empty(m * m, np.uint32),
        distances=np.empty(m * m, D.dtype),
        gain=np.empty(m),
        ceiling=np.full(m + 1, np.inf),
    )
    zeros = [np.zeros(size, np.int64) for size in (m, problem.n_clusters, problem.n_clusters)]
    _steps(selection, Taken(np.zeros(1, np.int64), *zeros), medoids, draws)
    return medoids


@njit(cache=True, nogil=True)
def _steps(selection: Selection, taken: Taken, medoids: NDArray[np.int64], draws: NDArray[np.float64]) -> None:
    """All steps; each on a sample of candidates if there are draws."""
    remaining = selection.remaining
    m = len(remaining)
    sampled = draws.shape[1] > 0
    end: Index = np.int64(0)  # of the lists
    for step in range(len(medoids)):
        n_remaining = n_candidates = m - step
        if sampled:
            n_candidates = min(draws.shape[1], n_remaining)
            for r in range(n_candidates):  # a partial Fisher-Yates shuffle: a sample without replacement
                other = r + int(draws[step, r] * (n_remaining - r))
                remaining[r], remaining[other] = remaining[other], remaining[r]
        candidates = remaining[:n_candidates]
        favorite = find_favorite(selection, candidates, step)
        best, end = evaluate(selection, taken, candidates, favorite, step, end)
        place = best_place(selection, candidates, best)
        medoids[step] = candidates[place]
        capture(selection, medoids[step], step)
        remaining[place] = remaining[n_remaining - 1]
