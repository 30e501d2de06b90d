"""A speed-up never changes a result: the answers of the first solver, at any number of threads."""

import json

import numpy as np
import pytest
from stored_answers import FILE, answer, instance

from facetric.losses.solver import ClusteringProblem, distances, greedy, nearest, solve
from facetric.losses.solver.distances import euclidean_distances

STORED = json.loads(FILE.read_text())


@pytest.fixture
def short_loops_on_threads(monkeypatch):
    monkeypatch.setattr(greedy, "_LONG_STEP", 0)
    monkeypatch.setattr(nearest, "_LONG_RANKING", 0)
    monkeypatch.setattr(distances, "_LONG", 0)


def differences(n_threads, every=1):
    for seed in range(0, len(STORED), every):
        stored = STORED[seed]
        problem, options = instance(seed)
        found = answer(problem, solve(problem, n_threads=n_threads, **options))
        if abs(found.pop("objective") - stored["objective"]) > problem.tolerance:
            yield seed, "objective"
        yield from ((seed, name) for name in found if found[name] != stored[name])


def test_the_answers_are_those_of_the_first_solver():
    assert not list(differences(n_threads=None))


@pytest.mark.parametrize("n_threads", [2, 3])
def test_the_number_of_threads_changes_no_answer(n_threads, short_loops_on_threads):
    assert not list(differences(n_threads, every=5))


@pytest.mark.parametrize("gamma", [1.0, 256.0])
def test_a_large_batch_has_the_same_medoids_at_any_number_of_threads(gamma):
    rng = np.random.default_rng(0)
    labels = np.arange(512) % 128
    points = (rng.normal(size=(128, 16))[labels] + rng.normal(size=(512, 16))).astype(np.float32)
    problem = ClusteringProblem.from_points(points, labels, gamma)
    assert len({tuple(solve(problem, n_threads=n).medoids.tolist()) for n in (1, 2, 3)}) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "d"), [(2, 1), (63, 8), (64, 3), (65, 9), (200, 64)])
def test_distances_are_exact_symmetric_and_the_same_at_any_number_of_threads(m, d, dtype, short_loops_on_threads):
    points = np.random.default_rng(m).normal(size=(m, d)).astype(dtype)
    points[-1] = points[0]
    found = [euclidean_distances(points, n_threads=n) for n in (1, 2, 3)]
    assert all(np.array_equal(found[0], other) for other in found)
    assert np.array_equal(found[0], found[0].T)
    assert found[0][0, -1] == 0.0
    exact = np.sqrt(((points[:, None].astype(float) - points) ** 2).sum(axis=-1))
    assert found[0].dtype == dtype
    np.testing.assert_allclose(found[0], exact, rtol=d * np.finfo(dtype).eps)
    np.testing.assert_allclose(euclidean_distances(points, squared=True), exact**2, rtol=2 * d * np.finfo(dtype).eps)
