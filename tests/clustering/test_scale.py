"""Large data: neighbors in blocks, sparse graphs, levels. The limits are lowered so that small data takes the same way."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_mutual_info_score

from clustering.clouds import blobs, distances
from facetric.clustering import FacilityLocation, knn, points
from facetric.clustering import levels as levels_module
from facetric.clustering.knn import EUCLIDEAN, neighbor_graph

LARGE = pytest.mark.usefixtures("levels")


@pytest.fixture(params=[400, 50], ids=["dense", "sparse"])
def levels(monkeypatch, request):
    monkeypatch.setattr(points, "MAX_DENSE", 100)
    monkeypatch.setattr(levels_module, "_DENSE_LEVEL", request.param)  # how the levels after the first are represented


def test_neighbors_are_those_of_all_distances():
    vectors = blobs(1300, 30, 0)[0].astype(np.float32)
    graph = neighbor_graph(vectors, 7, EUCLIDEAN)
    expected = np.sort(distances(vectors.astype(np.float64)), axis=1)[:, 1:8]
    found = np.sort(graph.data.reshape(1300, 7), axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert (graph.diagonal() == 0).all()


def test_duplicates_are_neighbors_at_distance_zero():
    vectors = np.repeat(blobs(20, 20, 0)[0], 3, axis=0).astype(np.float32)
    graph = neighbor_graph(vectors, 2, EUCLIDEAN)
    assert (graph.data == 0).all()


def test_cells_find_nearly_all_neighbors():
    vectors = blobs(6000, 80, 1, noise=0.5)[0].astype(np.float32)
    exact = neighbor_graph(vectors, 10, EUCLIDEAN)
    by_cells = neighbor_graph(vectors, 10, EUCLIDEAN, max_exact=1000)
    recall = np.mean(
        [np.isin(a, b).mean() for a, b in zip(*(g.indices.reshape(6000, 10) for g in (exact, by_cells)), strict=True)]
    )
    assert recall > 0.97


def test_neighbors_do_not_depend_on_threads():
    import numba

    vectors = blobs(3000, 40, 2, noise=0.5)[0].astype(np.float32)
    found = []
    for n_threads in (1, 2):
        numba.set_num_threads(min(n_threads, numba.config.NUMBA_NUM_THREADS))
        found.append(neighbor_graph(vectors, 8, EUCLIDEAN, max_exact=500))
    np.testing.assert_array_equal(found[0].indices, found[1].indices)
    np.testing.assert_array_equal(found[0].data, found[1].data)


@LARGE
@pytest.mark.parametrize(
    ("options", "slack"),
    [
        ({"n_clusters": 40}, 1.01),
        ({"n_clusters": 40, "centers": "medoids"}, 1.01),
        ({"n_clusters": 5, "centers": "medoids"}, 1.02),
        ({"n_clusters": 500, "centers": "medoids"}, 1.02),
        ({"opening_cost": 1.0}, 1.01),
        ({"opening_cost": 4.0}, 1.02),
        ({"opening_cost": 60.0}, 1.02),  # clusters much larger than the lists of neighbors
        ({"opening_cost": 0.05}, 1.01),
        ({"opening_cost": 0.5, "metric": "cosine"}, 1.02),
        ({"opening_cost": 1.0, "squared": True}, 1.02),
    ],
    ids=str,
)
def test_levels_come_close_to_all_distances(options, slack, monkeypatch):
    vectors, _ = blobs(2000, 40, 3, noise=0.4)
    levels = FacilityLocation(n_neighbors=16, **options).fit(vectors)
    monkeypatch.setattr(points, "MAX_DENSE", 10_000)
    dense = FacilityLocation(**options).fit(vectors)
    assert dense.objective_ / slack <= levels.objective_ <= slack * dense.objective_
    assert levels.medoid_indices_.tolist() == sorted(set(levels.medoid_indices_.tolist()))
    assert set(levels.labels_.tolist()) == set(range(len(levels.medoid_indices_)))
    assert ((levels.ambiguity_ >= 0) & (levels.ambiguity_ <= 1)).all()


@LARGE
def test_full_lists_of_neighbors_are_all_distances(monkeypatch):
    vectors, _ = blobs(300, 12, 4, noise=0.5)
    a = FacilityLocation(opening_cost=1.0, n_neighbors=299).fit(vectors)
    monkeypatch.setattr(points, "MAX_DENSE", 10_000)
    b = FacilityLocation(opening_cost=1.0).fit(vectors)
    assert a.labels_.tolist() == b.labels_.tolist()
    assert a.objective_ == b.objective_


@LARGE
def test_levels_keep_their_promises():
    vectors, labels = blobs(1500, 60, 5, noise=0.1)
    vectors = np.concatenate([vectors, 40 * np.eye(8)[:3]])
    found = FacilityLocation(opening_cost=3.0, n_neighbors=8).fit(vectors)
    to_medoid = np.linalg.norm(vectors - found.cluster_centers_[found.labels_], axis=1)
    assert to_medoid.max() <= 3.0 + 1e-5
    assert found.objective_ == pytest.approx(to_medoid.sum() + 3.0 * len(found.medoid_indices_), rel=1e-5)
    assert (np.bincount(found.labels_)[found.labels_[-3:]] == 1).all()
    assert adjusted_mutual_info_score(labels, found.labels_[:1500]) > 0.98
    assert (found.labels_[found.medoid_indices_] == np.arange(len(found.medoid_indices_))).all()


@LARGE
@pytest.mark.parametrize(
    "options", [{"n_clusters": 30}, {"n_clusters": 30, "centers": "medoids"}, {"opening_cost": 1.5}], ids=str
)
def test_links_are_respected_by_levels(options):
    vectors, _ = blobs(800, 30, 6, noise=0.4)
    rng = np.random.default_rng(0)
    plain = FacilityLocation(**options).fit(vectors).labels_
    pairs = rng.integers(0, 800, (3000, 2))
    must = pairs[plain[pairs[:, 0]] != plain[pairs[:, 1]]][:6]
    inside = pairs[(plain[pairs[:, 0]] == plain[pairs[:, 1]]) & (pairs[:, 0] != pairs[:, 1])]
    cannot = inside[~np.isin(inside, must).any(axis=1)][:10]
    found = FacilityLocation(**options).fit(vectors, must_link=must, cannot_link=cannot).labels_
    assert len(must) == 6
    assert len(cannot) == 10
    assert (found[must[:, 0]] == found[must[:, 1]]).all()
    assert (found[cannot[:, 0]] != found[cannot[:, 1]]).all()


@LARGE
def test_progress_is_reported_and_the_result_repeats():
    vectors, _ = blobs(900, 20, 8, noise=0.3)
    seen = []
    a = FacilityLocation(opening_cost=1.0).fit(vectors, progress=lambda *step: seen.append(step))
    b = FacilityLocation(opening_cost=1.0).fit(vectors)
    assert {name for name, _, _ in seen} == {"Neighbors", "Levels", "Refinement"}
    assert all(0 < done <= total for _, done, total in seen)
    assert a.labels_.tolist() == b.labels_.tolist()


@LARGE
@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize(
    "options", [{"n_clusters": 12}, {"n_clusters": 12, "centers": "medoids"}, {"opening_cost": 4.0}], ids=str
)
def test_weights_are_respected_by_levels(options, linked):
    vectors, _ = blobs(500, 12, 9, noise=0.4)
    weights = np.random.default_rng(0).integers(1, 6, 500)
    links = [(0, 400)] if linked else None
    found = FacilityLocation(**options).fit(vectors, sample_weight=weights, must_link=links)
    squared = 2 if options.get("centers", "") == "" and "n_clusters" in options else 1
    costs = np.linalg.norm(vectors - found.cluster_centers_[found.labels_], axis=1) ** squared
    price = options.get("opening_cost", 0.0) * found.n_clusters_
    assert found.objective_ == pytest.approx((weights * costs).sum() + price, rel=1e-5)
    often = FacilityLocation(**options).fit(np.repeat(vectors, weights, axis=0))
    plain = FacilityLocation(**options).fit(vectors)
    assert found.objective_ <= 1.03 * often.objective_ + (0.1 * often.objective_ if linked else 0)
    assert -plain.score(vectors, sample_weight=weights) >= found.objective_ * 0.999 or linked


@LARGE
@pytest.mark.parametrize("options", [{"opening_cost": 1.0}, {"n_clusters": 3}, {"n_clusters": 3, "centers": "medoids"}], ids=str)
def test_equal_points_at_scale(options):
    found = FacilityLocation(**options).fit(np.ones((300, 4)))
    assert len(found.medoid_indices_) == options.get("n_clusters", 1)
    assert np.isfinite(found.ambiguity_).all()


def test_wide_k_means_looks_at_the_means_in_reach(levels, monkeypatch):
    vectors, _ = blobs(1500, 100, 10, noise=0.4)
    a = FacilityLocation(n_clusters=100).fit(vectors)
    monkeypatch.setattr(points, "MAX_ALL_PAIRS", 1000)
    b = FacilityLocation(n_clusters=100).fit(vectors)
    assert a.objective_ <= b.objective_ * (1 + 1e-6)
    assert b.objective_ <= 1.005 * a.objective_


def test_the_limits_are_where_the_documentation_says():
    assert points.MAX_DENSE == 10_000
    assert knn.MAX_EXACT == 100_000
