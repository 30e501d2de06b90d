"""The solver against plain loops written from the paper: medoid for medoid, and never above the true maximum."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score, v_measure_score

from facetric import metrics
from facetric.losses.solver import ClusteringProblem, assign, oracle_medoids, solve
from facetric.losses.solver import greedy as greedy_selection
from facetric.losses.solver.exchange import local_search, pam
from facetric.losses.solver.greedy import greedy
from oracles import batch_clustering as oracle
from random_batches import distance_matrix, random_batch

GAMMAS = [0.0, 0.1, 1.0, 5.0, 50.0]


def problems(seed, n, **options):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        points, labels = random_batch(rng, **options)
        yield distance_matrix(points), labels, float(rng.choice(GAMMAS))


@pytest.mark.parametrize("seed", range(4))
def test_greedy_and_pam_equal_the_naive_algorithms_medoid_for_medoid(seed):
    for distances, labels, gamma in problems(seed, 125):
        D, y = distances.tolist(), labels.tolist()
        problem = ClusteringProblem(distances, labels, gamma)
        chosen = greedy(problem)
        assert chosen.tolist() == oracle.greedy(D, y, gamma)
        sweeps = oracle.pam(D, y, gamma, chosen.tolist(), 5)
        refined = pam(problem, chosen)
        assert refined.medoids.tolist() == sweeps[-1]
        assert refined.n_sweeps == len(sweeps)
        trace = [oracle.objective(D, y, gamma, S) for S in [chosen.tolist(), *sweeps]]
        assert refined.trace == pytest.approx(trace, abs=1e-9)


@pytest.mark.parametrize(
    ("margin", "score"),
    [
        ("vmeasure", lambda a, y: v_measure_score(y, a)),
        ("ami", lambda a, y: adjusted_mutual_info_score(y, a)),
        ("ari", lambda a, y: adjusted_rand_score(y, a)),
        ("f1", lambda a, y: metrics.pairwise_f1(y, a)),
        ("zero_one", lambda a, y: metrics.matched_accuracy(y, a)),
    ],
)
@pytest.mark.parametrize("n", [10, pytest.param(60, marks=pytest.mark.slow)])
def test_every_margin_drives_the_same_algorithms(margin, score, n):
    for distances, labels, gamma in problems(7, n, n_points=9):
        D, y = distances.tolist(), labels.tolist()
        solution = solve(ClusteringProblem(distances, labels, gamma, margin=margin))
        expected = oracle.pam(D, y, gamma, oracle.greedy(D, y, gamma, score), 5, score)[-1]
        assert solution.medoids.tolist() == expected
        assert solution.objective == pytest.approx(oracle.objective(D, y, gamma, expected, score), abs=1e-9)


@pytest.mark.parametrize("refine", ["pam", "local_search"])
def test_a_callable_margin_is_the_named_one_it_computes(refine):
    for distances, labels, gamma in problems(3, 60):
        named = solve(ClusteringProblem(distances, labels, gamma, margin="nmi"), refine=refine)
        called = solve(ClusteringProblem(distances, labels, gamma, margin=metrics.nmi), refine=refine)
        assert named.medoids.tolist() == called.medoids.tolist()
        assert named.objective == pytest.approx(called.objective, abs=1e-9)


def test_the_objective_never_exceeds_the_brute_force_maximum():
    """On every instance up to m = 8; the mean ratio of what is reached is printed (-rP shows it)."""
    shares = {"greedy": [], "pam": [], "local_search": []}
    for m in range(2, 9):
        for distances, labels, gamma in problems(100 + m, 60, n_points=m, ties=m in (4, 6)):
            D, y = distances.tolist(), labels.tolist()
            best = oracle.maximum(D, y, gamma)
            worst = min(-distances.sum(axis=0))  # F of the worst single medoid: below any A(S)
            for name, refine in (("greedy", None), ("pam", "pam"), ("local_search", "local_search")):
                reached = solve(ClusteringProblem(distances, labels, gamma), refine=refine).objective
                assert reached <= best + 1e-9
                shares[name].append((reached - worst) / (best - worst) if best > worst else 1.0)
    means = {name: float(np.mean(values)) for name, values in shares.items()}
    print("mean (A − lowest) / (max A − lowest):", means)
    assert means["greedy"] <= means["pam"] <= means["local_search"] <= 1 + 1e-9
    assert means["pam"] > 0.97


def test_local_search_equals_the_naive_search_medoid_for_medoid():
    for distances, labels, gamma in problems(8, 200):
        problem = ClusteringProblem(distances, labels, gamma)
        start = greedy(problem)
        found = local_search(problem, start).medoids.tolist()
        assert found == oracle.local_search(distances.tolist(), labels.tolist(), gamma, start.tolist())


def test_local_search_ends_where_no_single_exchange_helps():
    for distances, labels, gamma in problems(5, 300):
        solution = solve(ClusteringProblem(distances, labels, gamma), refine="local_search")
        best = oracle.best_swap(distances.tolist(), labels.tolist(), gamma, solution.medoids.tolist())
        assert best <= solution.objective + 1e-8


def test_oracle_medoids_reach_the_oracle_score():
    for distances, labels, _ in problems(6, 300):
        problem = ClusteringProblem(distances, labels)
        medoids = oracle_medoids(problem)
        score = -distances[np.arange(len(labels)), medoids[problem.classes]].sum()
        assert score == pytest.approx(oracle.oracle_score(distances.tolist(), labels.tolist()), abs=1e-9)
        assert (labels[medoids] == np.unique(labels)).all()


def test_assignment_keeps_every_medoid_at_home_even_among_duplicates():
    problem = ClusteringProblem(np.zeros((4, 4)), [0, 0, 1, 1])
    assert assign(problem, np.array([2, 1])).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("margin", ["nmi", "vmeasure", "ami", "ari", "f1"])
def test_both_ways_of_greedy_selection_give_the_same_medoids(margin, monkeypatch):
    """Following all candidates, of which none is excluded, and evaluating them one by one, whatever γ is."""
    for distances, labels, gamma in problems(12, 100):
        problem = ClusteringProblem(distances, labels, gamma, margin)
        monkeypatch.setattr(greedy_selection, "_SMALL_MARGIN", -1.0)
        followed = greedy(problem).tolist()
        monkeypatch.setattr(greedy_selection, "_SMALL_MARGIN", np.inf)
        assert followed == greedy(problem).tolist()
