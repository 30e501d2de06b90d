"""The maximum over S and the oracle score F̃: what the loss compares, and the gradient of their difference.

`solve` initializes S (Algorithm 1) and refines it (Algorithm 2 or Lemma 2); the oracle gives each true class its own best medoid.
`score_gap` is F − F̃ as a function of the points, with its gradient: all of the loss that moves the embedding.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.losses.solver.compiled import Distances, Index, inner_kernel, use_threads
from facetric.losses.solver.exchange import local_search, pam
from facetric.losses.solver.greedy import greedy, random_medoids, stochastic_greedy
from facetric.losses.solver.nearest import nearest_medoids
from facetric.losses.solver.problem import ClusteringProblem, Solution, solution_of, whole

Inference = Literal["greedy", "stochastic", "random", "auto"]
Refinement = Literal["pam", "local_search"]

# Loss and backward take about 3 ns · m²·ln|Y| on two cores (`benchmarks/loss_step.py`). Up to this limit for m·ln|Y| that is 2%
# of a step in which the network takes 1 ms per image: m = 1,024 with up to 900 classes. A higher one would change "auto" runs.
EXACT_LIMIT = 7_000


def solve(
    problem: ClusteringProblem,
    *,
    inference: Inference = "greedy",
    refine: Refinement | None = "pam",
    max_sweeps: int = 5,
    rng: np.random.Generator | int | None = None,
    n_threads: int | None = None,
) -> Solution:
    """Approximate the maximum over S of A(S) = F(X, S) + γ·Δ(g(S), y*), with |S| = the number of classes.

    * ``inference``: "greedy" (Algorithm 1), "stochastic" (a random sample of candidates per step), "random" medoids, or "auto":
      "greedy" as long as m·ln|Y| ≤ 7,000, "stochastic" for larger batches.
    * ``refine``: "pam" (Algorithm 2, at most ``max_sweeps`` sweeps), "local_search" (until no exchange helps) or None.
    * ``rng``: a generator or a seed for "stochastic" and "random"; None is seed 0. Everything else is deterministic.
    * ``n_threads``: None takes NUMBA_NUM_THREADS, without it all available cores. It never changes the result.

    >>> import numpy as np
    >>> points = np.array([0.0, 0.1, 0.2, 5.0, 5.1, 5.2])
    >>> problem = ClusteringProblem(abs(points[:, None] - points), labels=[0, 0, 0, 1, 1, 1], margin_weight=0.1)
    >>> solution = solve(problem)
    >>> solution.assignment.tolist(), round(solution.facility_score, 6), round(solution.margin, 6)
    ([0, 0, 0, 1, 1, 1], -0.4, 0.0)
    """
    check_solver_options(inference, refine, max_sweeps)
    if inference == "auto":
        inference = inference_for(problem.n_points, problem.n_clusters)
    with use_threads(n_threads) as threads:
        if inference == "greedy":
            medoids = greedy(problem, threads=threads)
        elif inference == "stochastic":
            medoids = stochastic_greedy(problem, np.random.default_rng(rng or 0))
        else:
            medoids = random_medoids(problem, np.random.default_rng(rng or 0))
        if refine == "pam":
            return pam(problem, medoids, max_sweeps=max_sweeps, threads=threads)
        if refine == "local_search":
            return local_search(problem, medoids, threads=threads)
        return solution_of(problem, medoids, assign(problem, medoids))


def inference_for(n_points: int, n_clusters: int) -> Literal["greedy", "stochastic"]:
    """What "auto" is for a batch of this size. A rule, not a measurement: a run repeats itself on any machine.

    >>> inference_for(1024, 256), inference_for(2048, 512)
    ('greedy', 'stochastic')
    """
    return "greedy" if n_points * math.log(n_clusters) <= EXACT_LIMIT else "stochastic"


def check_solver_options(inference: str, refine: str | None, max_sweeps: int) -> None:
    """Refuse unknown options before any work is done."""
    if inference not in get_args(Inference):
        raise ValueError(f"inference must be one of {', '.join(get_args(Inference))}; got {inference!r}: choose one of these")
    if refine is not None and refine not in get_args(Refinement):
        raise ValueError(f"refine must be one of {', '.join(get_args(Refinement))} or None; got {refine!r}: choose one of these")
    whole("max_sweeps", max_sweeps, at_least=0, hint="the paper uses 5")


def assign(problem: ClusteringProblem, medoids: NDArray[np.int64]) -> NDArray[np.int64]:
    """g(S): the position of each point's nearest medoid; ties to the first position, a medoid always to itself. (m,)"""
    with use_threads(None) as threads:
        return nearest_medoids(problem, np.asarray(medoids, np.int64), threads).first.astype(np.int64)


def oracle_medoids(problem: ClusteringProblem) -> NDArray[np.int64]:
    """For each class its medoid: the member with the least sum of distances from the others. (n_clusters,)

    Ties go to the lowest index, within the problem's tolerance.
    """
    by_class = np.argsort(problem.classes, kind="stable")
    ends = np.cumsum(np.bincount(problem.classes))
    medoids: NDArray[np.int64] = _class_medoids(problem.distances, by_class, ends, problem.tolerance)
    return medoids


@njit(cache=True, nogil=True)
def _class_medoids(
    distances: Distances, by_class: NDArray[np.int64], ends: NDArray[np.int64], tolerance: float
) -> NDArray[np.int64]:
    medoids = np.empty(len(ends), dtype=np.int64)
    cost = np.empty(len(by_class))
    start = 0
    for c in range(len(ends)):
        members = by_class[start : ends[c]]  # ascending
        start = ends[c]
        for j in members:
            cost[j] = 0.0
        for i in members:
            for j in members:
                cost[j] += distances[i, j]
        least = np.inf
        for j in members:
            least = min(least, cost[j])
        for j in members:
            if cost[j] <= least + tolerance:
                medoids[c] = j
                break
    return medoids


@njit(cache=True, nogil=True)
def score_gap(
    points: Distances, medoid_of: NDArray[np.int64], oracle_of: NDArray[np.int64], squared: bool
) -> tuple[float, Distances]:
    """F − F̃ of points (m, d), each assigned to medoid_of[i] in F and to oracle_of[i] in F̃; and its gradient (m, d).

    A point with the same medoid in both contributes exactly nothing. The gradient of a distance of zero is zero.
    """
    gap = 0.0
    gradient = np.zeros(points.shape)
    for i in range(len(points)):
        if medoid_of[i] != oracle_of[i]:
            gap += _add_gradient(points, gradient, i, oracle_of[i], 1.0, squared)
            gap -= _add_gradient(points, gradient, i, medoid_of[i], -1.0, squared)
    return gap, gradient.astype(points.dtype)


@inner_kernel()
def _add_gradient(points: Distances, gradient: NDArray[np.float64], i: Index, j: Index, sign: float, squared: bool) -> float:
    """The distance of point i to point j; adds its gradient, times `sign`, to the rows of both."""
    square = 0.0
    for k in range(points.shape[1]):
        difference = np.float64(points[i, k]) - np.float64(points[j, k])
        square += difference * difference
    distance = square if squared else np.sqrt(square)
    if distance > 0.0:
        scale = 2.0 * sign if squared else sign / distance
        for k in range(points.shape[1]):
            step = scale * (np.float64(points[i, k]) - np.float64(points[j, k]))
            gradient[i, k] += step
            gradient[j, k] -= step
    return distance
