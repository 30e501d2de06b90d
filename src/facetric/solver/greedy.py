"""Algorithm 1 of the paper: loss-augmented inference by greedy selection, exact or on random samples of candidates.

Each step adds the point j with the best A(S ∪ {j}). What a candidate could capture only becomes less as S grows
(:mod:`facetric.solver.candidates`): one step costs about m²/|S|, and the whole selection about m²·log|Y|.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.solver.candidates import Selection, best_place, capture, count_capture, evaluate, find_favorite, pack
from facetric.solver.counts import Counts, count
from facetric.solver.kernels import Index
from facetric.solver.margin import compiled_margin
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


def _select(
    problem: ClusteringProblem, draws: NDArray[np.float64], prune: bool, threads: Threads | int | None
) -> NDArray[np.int64]:
    D, m = problem.from_medoid, problem.n_points
    medoids = np.empty(problem.n_clusters, dtype=np.int64)
    with compiled_margin(problem) as margin, use_threads(1 if callable(problem.margin) else threads) as crew:
        selection = Selection(
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
        counts = count(margin, selection.cluster, problem.n_clusters)
        step = 0
        if draws.shape[1] == 0 and crew.n_threads > 1 and m * m >= _LONG_STEP:
            step = _long_steps(selection, counts, medoids, crew)
        _steps(selection, counts, medoids, step, draws)
    return medoids


def _long_steps(selection: Selection, counts: Counts, medoids: NDArray[np.int64], crew: Threads) -> int:
    """The first steps, as long as they are long, each with its candidates spread over the threads. How many they are."""
    m, step = len(selection.near), 0
    n_visits = m * m
    every_count = [counts]
    every_count += [Counts(counts.table.copy(), counts.sizes.copy(), counts.sums.copy()) for _ in range(1, crew.n_threads)]
    while step < len(medoids) and n_visits >= _LONG_STEP:
        candidates = selection.remaining[: m - step]
        favorite = find_favorite(selection, counts, candidates, step)
        bar = -np.inf
        if selection.length[candidates[favorite]] >= 0:
            bar = evaluate(selection, counts, candidates[favorite : favorite + 1], 0, step, 0, bar)[0]
        found = crew.run(partial(_evaluate_piece, selection, every_count, candidates, step, bar), m - step)
        n_visits = sum(visits for _, visits in found)
        place = best_place(selection, candidates, max(best for best, _ in found))
        medoids[step] = candidates[place]
        for each in every_count:
            count_capture(selection, each, medoids[step], step)
        capture(selection, medoids[step], step)
        candidates[place:-1] = candidates[place + 1 :].copy()
        step += 1
    return step


def _evaluate_piece(
    selection: Selection,
    every_count: list[Counts],
    candidates: NDArray[np.int64],
    step: int,
    bar: float,
    thread: int,
    first: int,
    last: int,
) -> tuple[float, int]:
    free = first * len(selection.near)  # new lists of one piece keep to its own part of the memory
    best, _, n_visits = evaluate(selection, every_count[thread], candidates[first:last], 0, step, free, bar)
    return best, n_visits


@njit(cache=True, nogil=True)
def _steps(selection: Selection, counts: Counts, medoids: NDArray[np.int64], step: int, draws: NDArray[np.float64]) -> None:
    """All steps from `step` on; each on a sample of candidates if there are draws."""
    remaining = selection.remaining
    m = len(remaining)
    sampled = draws.shape[1] > 0
    end: Index = np.int64(0)  # of the lists
    while step < len(medoids):
        n_remaining = n_candidates = m - step
        if sampled:
            n_candidates = min(draws.shape[1], n_remaining)
            for r in range(n_candidates):  # a partial Fisher-Yates shuffle: a sample without replacement
                other = r + int(draws[step, r] * (n_remaining - r))
                remaining[r], remaining[other] = remaining[other], remaining[r]
        candidates = remaining[:n_candidates]
        favorite = find_favorite(selection, counts, candidates, step)
        best, end, _ = evaluate(selection, counts, candidates, favorite, step, end, -np.inf)
        place = best_place(selection, candidates, best)
        medoids[step] = candidates[place]
        count_capture(selection, counts, medoids[step], step)
        capture(selection, medoids[step], step)
        if sampled:
            remaining[place] = remaining[n_remaining - 1]
        else:
            for r in range(place, n_remaining - 1):
                remaining[r] = remaining[r + 1]
            if step & (step - 1) == 0:  # a power of two: since the last time the lists have become half as long
                pack(selection, n_remaining - 1)
        step += 1
