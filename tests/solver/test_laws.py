"""Laws of the solver, over random problems drawn by hypothesis."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from facetric.losses import solver
from facetric.losses.solver import ClusteringProblem, solve
from random_batches import distance_matrix, random_batch

seeds = st.integers(0, 2**32 - 1)


def clustered_problem(rng, m=128, n_classes=32, d=16, gamma=1.0, margin="nmi"):
    labels = np.arange(m) % n_classes
    points = rng.normal(size=(n_classes, d))[labels] + rng.normal(size=(m, d))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return ClusteringProblem(distance_matrix(points), labels, gamma, margin)


@given(seed=seeds, gamma=st.sampled_from([0.0, 0.3, 3.0, 30.0]))
def test_renaming_the_classes_changes_nothing(seed, gamma):
    rng = np.random.default_rng(seed)
    points, labels = random_batch(rng)
    names = rng.permutation(10**6)[: labels.max() + 1] - 500_000
    plain = solve(ClusteringProblem(distance_matrix(points), labels, gamma))
    renamed = solve(ClusteringProblem(distance_matrix(points), names[labels], gamma))
    assert plain.medoids.tolist() == renamed.medoids.tolist()
    assert plain.objective == pytest.approx(renamed.objective, abs=1e-9)


@given(seed=seeds, gamma=st.sampled_from([0.0, 0.3, 3.0, 30.0]))
def test_permuting_a_batch_without_ties_changes_nothing_but_the_order(seed, gamma):
    """Asymmetric distances have no ties, not even between the two points of a pair."""
    rng = np.random.default_rng(seed)
    _, labels = random_batch(rng)
    distances = rng.random((len(labels), len(labels)))
    np.fill_diagonal(distances, 0)
    order = rng.permutation(len(labels))
    plain = solve(ClusteringProblem(distances, labels, gamma))
    permuted = solve(ClusteringProblem(distances[order][:, order], labels[order], gamma))
    if gamma == 0 or len(set(labels)) in (1, len(labels)):
        assert sorted(order[permuted.medoids].tolist()) == sorted(plain.medoids.tolist())
    assert permuted.objective == pytest.approx(plain.objective, abs=1e-8)


@given(
    seed=seeds,
    inference=st.sampled_from(["greedy", "stochastic", "random"]),
    refine=st.sampled_from(["pam", "local_search", None]),
    margin=st.sampled_from(["nmi", "vmeasure", "ami", "ari", "f1", "zero_one"]),
)
def test_every_solution_is_consistent(seed, inference, refine, margin):
    rng = np.random.default_rng(seed)
    points, labels = random_batch(rng)
    problem = ClusteringProblem(distance_matrix(points), labels, 2.0, margin)
    solution = solve(problem, inference=inference, refine=refine, rng=seed)
    assert len(set(solution.medoids.tolist())) == problem.n_clusters == len(set(labels.tolist()))
    assert (solution.assignment[solution.medoids] == np.arange(problem.n_clusters)).all()
    assert 0.0 <= solution.margin <= 1.0
    assert solution.facility_score <= 0.0
    assert solution.objective == pytest.approx(solution.facility_score + 2.0 * solution.margin)
    assert solution.trace[-1] == pytest.approx(solution.objective, abs=1e-9)
    assert len(solution.trace) == solution.n_sweeps + 1
    assert all(later >= earlier - 1e-9 for earlier, later in zip(solution.trace, solution.trace[1:], strict=False))


@given(seed=seeds)
def test_local_search_is_at_least_as_good_as_pam_was_before_it(seed):
    rng = np.random.default_rng(seed)
    points, labels = random_batch(rng)
    problem = ClusteringProblem(distance_matrix(points), labels, 5.0)
    assert solve(problem, refine="local_search").objective >= solve(problem, refine=None).objective - 1e-9


@pytest.mark.parametrize("inference", ["greedy", "stochastic", "random"])
def test_the_same_problem_and_seed_give_the_same_solution(inference):
    problem = clustered_problem(np.random.default_rng(0))
    first, second = (solve(problem, inference=inference, rng=3) for _ in range(2))
    assert first.medoids.tolist() == second.medoids.tolist()
    if inference != "greedy":
        assert first.medoids.tolist() != solve(problem, inference=inference, rng=4).medoids.tolist()


def test_stochastic_greedy_is_within_one_per_cent_of_exact_at_1024_points():
    problem = clustered_problem(np.random.default_rng(0), m=1024, n_classes=256, d=64)
    exact = solve(problem, refine=None).objective
    sampled = solve(problem, inference="stochastic", refine=None).objective
    assert sampled == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("margin", ["nmi", "ami", lambda table: float(table.max() / table.sum())])
def test_threads_do_not_disturb_each_other(margin):
    problems = [clustered_problem(np.random.default_rng(seed), m=64, n_classes=16, margin=margin) for seed in range(8)]
    alone = [solve(problem).medoids.tolist() for problem in problems]
    with ThreadPoolExecutor(4) as pool:
        together = [solution.medoids.tolist() for solution in pool.map(solve, problems)]
    assert together == alone


def test_kernels_are_compiled_once_and_cached_on_disk():
    """A fresh process finds the kernels on disk: no compilation, only cache hits."""
    program = (
        "import numpy as np\n"
        "from facetric.losses.solver import ClusteringProblem, solve\n"
        "from facetric.losses.solver import exchange, greedy\n"
        "solve(ClusteringProblem(1.0 - np.eye(4), [0, 0, 1, 1]))\n"
        "hits = [sum(k.stats.cache_hits.values()) for k in (greedy._follow_steps, exchange.sweeps)]\n"
        "assert hits == [1, 1], hits\n"
    )
    solve(clustered_problem(np.random.default_rng(0), m=8, n_classes=2))  # whoever comes first compiles
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def test_the_solver_does_not_import_torch():
    """Its room, `losses`, does; its own modules do not."""
    modules = list(Path(solver.__file__).parent.glob("*.py"))
    assert modules
    assert [module.name for module in modules if "import torch" in module.read_text() or "from torch" in module.read_text()] == []
