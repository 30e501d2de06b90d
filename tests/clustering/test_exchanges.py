"""Exchanges without a matrix against those with one. The blocks are made small, so that there are many."""

import numpy as np
import pytest

from clustering.piles import blobs, distances
from facetric.clustering import exchanges
from facetric.clustering.distances import pair_cost
from facetric.clustering.exchanges import exchange_all
from facetric.clustering.levels import Cloud, Clusters, own_costs
from facetric.clustering.solve import solve
from facetric.clustering.state import Dense, unserved_cost
from oracles import medoids as oracle

METRICS = pytest.mark.parametrize(
    "metric",
    [{"cosine": cosine, "squared": squared} for cosine in (False, True) for squared in (False, True)],
    ids=["euclidean", "squared euclidean", "cosine", "squared cosine"],
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(exchanges, "_BLOCK_ENTRIES", 2000)


def cloud_of(n, n_classes, seed, *, noise=0.6, cosine=False, squared=False):
    vectors = blobs(n, n_classes, seed, noise=noise)[0]
    if cosine:
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return Cloud.of((vectors - (0 if cosine else vectors.mean(axis=0))).astype(np.float32), 8, cosine=cosine, squared=squared)


def start_of(cloud, k, seed):
    """Random medoids; labels do not count."""
    medoids = np.sort(np.random.default_rng(seed).choice(len(cloud.vectors), k, replace=False))
    return Clusters(np.zeros(len(cloud.vectors), dtype=np.int64), medoids, 0)


def dense(cloud):
    costs = np.array([[pair_cost(x, y, cloud.cosine, cloud.squared) for y in cloud.vectors] for x in cloud.vectors])
    return Dense(costs, np.full(len(costs), unserved_cost(costs)))


@METRICS
@pytest.mark.parametrize("seed", range(4))
def test_the_exchanges_are_those_of_all_distances(metric, seed):
    cloud = cloud_of(300, 20, seed, **metric)
    start = start_of(cloud, (1, 2, 20, 100)[seed], seed)
    order, costs = np.random.default_rng(seed).permutation(300), dense(cloud)
    for max_sweeps in (1, 2, 100):
        found = exchange_all(cloud, start, max_sweeps, order=order)
        expected = solve(costs, n_clusters=len(start.medoids), start=start.medoids, order=order, max_sweeps=max_sweeps)
        assert found.medoids.tolist() == expected.medoids.tolist()
        assert found.medoids[found.labels].tolist() == expected.near.tolist()
        assert own_costs(cloud, found.medoids, found.labels).sum() == pytest.approx(expected.objective, rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_the_exchanges_are_those_of_the_definition(seed):
    cloud = cloud_of(40, 5, seed)
    start = start_of(cloud, 6, seed)
    found = exchange_all(cloud, start, 100, order=np.arange(40))
    cost = distances(cloud.vectors.astype(np.float64))
    assert found.medoids.tolist() == oracle.eager_swaps(cost, start.medoids.tolist())


@METRICS
@pytest.mark.parametrize("renewed", [(), (0.25, 0.125)], ids=["exchanged", "renewed"])
def test_no_exchange_helps_in_the_end_and_the_start_is_never_better(metric, renewed):
    cloud = cloud_of(80, 12, 1, **metric)
    cost = dense(cloud).costs.T.tolist()
    for seed in range(3):
        start = start_of(cloud, 9, seed)
        found = exchange_all(cloud, start, 100, renewed=renewed)
        value = oracle.objective(cost, found.medoids.tolist())
        assert value <= oracle.objective(cost, start.medoids.tolist())
        assert value <= oracle.best_swap(cost, found.medoids.tolist()) + 1e-6
        assert value <= oracle.objective(cost, exchange_all(cloud, start, 100).medoids.tolist())
        assert len(set(found.medoids.tolist())) == 9
        assert found.labels[found.medoids].tolist() == list(range(9))


def test_far_from_the_origin_and_among_duplicates_nothing_is_missed():
    """Rounding of the products must not hide a client."""
    vectors = blobs(150, 10, 3, noise=0.02)[0] + 300.0
    vectors = np.concatenate([vectors, vectors[:50]]).astype(np.float32)
    cloud = Cloud.of(vectors, 8, cosine=False, squared=False)
    start, order = start_of(cloud, 12, 0), np.arange(200)
    found = exchange_all(cloud, start, 100, order=order)
    expected = solve(dense(cloud), n_clusters=12, start=start.medoids, order=order)
    assert own_costs(cloud, found.medoids, found.labels).sum() == pytest.approx(expected.objective, rel=1e-9)


def test_the_number_of_threads_does_not_matter():
    import numba

    cloud = cloud_of(900, 40, 4)
    found = []
    for n_threads in (1, 2):
        numba.set_num_threads(min(n_threads, numba.config.NUMBA_NUM_THREADS))
        found.append(exchange_all(cloud, start_of(cloud, 30, 0), 100, renewed=(0.25,)))
    assert found[0].medoids.tolist() == found[1].medoids.tolist()
    assert found[0].labels.tolist() == found[1].labels.tolist()
