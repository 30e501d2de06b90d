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

from facetric.metrics.agreement import ZERO_ONE
from facetric.solver.candidates import Selection, Taken, best_place, capture, evaluate, find_favorite
from facetric.solver.kernels import Index, Threads, use_threads
from facetric.solver.margin import compiled_margin, count
from facetric.solver.problem import ClusteringProblem

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
    with compiled_margin(problem) as margin, use_threads(threads) as crew:
        cluster = np.zeros(m, np.uint32)
        selection = Selection(
            D=D,
            gamma=problem.margin_weight,
            margin=margin,
            tolerance=problem.tolerance,
            prune=prune,
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
        step = 0
        # a score that needs the whole table changes it for every candidate, so its candidates are not spread over threads
        if draws.shape[1] == 0 and margin.scale.score < ZERO_ONE and crew.n_threads > 1 and m * m >= _LONG_STEP:
            step = _long_steps(selection, medoids, crew)
        _steps(selection, _none_taken(selection), medoids, step, draws)
    return medoids


def _none_taken(selection: Selection) -> Taken:
    n_clusters, n_classes = selection.counts.table.shape
    zeros = [np.zeros(size, np.int64) for size in (len(selection.cell), n_clusters, n_classes)]
    return Taken(np.zeros(1, np.int64), *zeros)


def _long_steps(selection: Selection, medoids: NDArray[np.int64], crew: Threads) -> int:
    """The first steps, as long as they are long, each with its candidates spread over the threads. How many they are."""
    m, step = len(selection.near), 0
    n_visits = m * m
    taken = [_none_taken(selection) for _ in range(crew.n_threads)]
    while step < len(medoids) and n_visits >= _LONG_STEP:
        candidates = selection.remaining[: m - step]
        favorite = find_favorite(selection, candidates, step)
        bar = -np.inf
        if selection.length[candidates[favorite]] >= 0:
            bar = evaluate(selection, taken[0], candidates[favorite : favorite + 1], 0, step, 0, bar)[0]
        found = crew.run(partial(_evaluate_piece, selection, taken, candidates, step, bar), m - step)
        n_visits = sum(visits for _, visits in found)
        place = best_place(selection, candidates, max(best for best, _ in found))
        medoids[step] = candidates[place]
        capture(selection, medoids[step], step)
        candidates[place] = candidates[-1]
        step += 1
    return step


def _evaluate_piece(
    selection: Selection,
    taken: list[Taken],
    candidates: NDArray[np.int64],
    step: int,
    bar: float,
    thread: int,
    first: int,
    last: int,
) -> tuple[float, int]:
    free = first * len(selection.near)  # new lists of one piece keep to its own part of the memory
    best, _, n_visits = evaluate(selection, taken[thread], candidates[first:last], 0, step, free, bar)
    return best, n_visits


@njit(cache=True, nogil=True)
def _steps(selection: Selection, taken: Taken, medoids: NDArray[np.int64], step: int, draws: NDArray[np.float64]) -> None:
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
        favorite = find_favorite(selection, candidates, step)
        best, end, _ = evaluate(selection, taken, candidates, favorite, step, end, -np.inf)
        place = best_place(selection, candidates, best)
        medoids[step] = candidates[place]
        capture(selection, medoids[step], step)
        remaining[place] = remaining[n_remaining - 1]
        step += 1
