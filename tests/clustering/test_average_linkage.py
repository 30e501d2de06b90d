"""Average linkage: the tree of all distances, without all distances."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score

from clustering.clouds import blobs
from facetric.clustering import AverageLinkage
from facetric.clustering import linkage as linkage_module
from facetric.clustering import tree as tree_module
from facetric.clustering.links import Links
from facetric.clustering.merging import merge_near, symmetric_lists
from facetric.clustering.tree import average_linkage
from oracles import linkage as oracle


def clusters_of(labels):
    return sorted(np.flatnonzero(labels == k).tolist() for k in range(labels.max() + 1))


@pytest.fixture
def small_limits(monkeypatch):
    monkeypatch.setattr(tree_module, "MAX_ALL_PAIRS", 60)  # small data takes the way of large data


@pytest.mark.parametrize("seed", range(20))
def test_it_merges_what_plain_loops_merge(seed):
    rng = np.random.default_rng(seed)
    points = blobs(24, 5, seed, noise=0.5, dimension=3)[0]
    threshold = rng.uniform(0.3, 2.5)
    found = AverageLinkage(threshold).fit(points)
    expected = oracle.average_linkage(points, threshold**2)
    assert clusters_of(found.labels_) == expected
    np.testing.assert_allclose(found.ambiguity_, oracle.ambiguity(points, expected, threshold), atol=1e-3)
    for cluster, medoid, mean in zip(expected, found.medoid_indices_, found.cluster_centers_, strict=True):
        np.testing.assert_allclose(mean, points[cluster].mean(axis=0), atol=1e-5)
        totals = [oracle.mean_square(points, [i], cluster) for i in cluster]
        assert totals[cluster.index(medoid)] == pytest.approx(min(totals), rel=1e-5)


def test_the_whole_tree_has_the_heights_of_scipy():
    points = blobs(700, 40, 0, noise=0.6)[0].astype(np.float32)
    tree = average_linkage(points, np.inf, n_neighbors=8, links=Links.parse(None, None, 700))
    expected = linkage(pdist(points.astype(np.float64), "sqeuclidean"), "average")[:, 2]
    np.testing.assert_allclose(np.sort(tree.links), expected, rtol=1e-4)


@pytest.mark.parametrize("n_clusters", [1, 2, 13, 40, 300])
def test_a_number_of_clusters_cuts_the_tree_of_scipy(n_clusters):
    points = blobs(300, 40, 3, noise=0.6)[0]
    found = AverageLinkage(n_clusters=n_clusters).fit(points)
    expected = fcluster(linkage(pdist(points, "sqeuclidean"), "average"), n_clusters, "maxclust")
    assert found.n_clusters_ == found.labels_.max() + 1 == n_clusters
    assert adjusted_rand_score(found.labels_, expected) == 1.0
    if n_clusters > 1:  # with one, any threshold is enough
        assert AverageLinkage(found.threshold_).fit_predict(points).tolist() == found.labels_.tolist()


def test_a_threshold_with_a_number_of_clusters_gives_at_most_so_many():
    points, _ = blobs(400, 20, 0, noise=0.1)
    plain, enough, fewer = (AverageLinkage(1.0, n_clusters=k).fit(points) for k in (None, 25, 7))
    assert plain.n_clusters_ == 20
    assert enough.labels_.tolist() == plain.labels_.tolist()
    assert enough.threshold_ == 1.0 < fewer.threshold_
    assert fewer.labels_.tolist() == AverageLinkage(n_clusters=7).fit_predict(points).tolist()


def test_equal_points_are_one_cluster_or_as_many_as_asked_for():
    points = np.full((7, 3), 0.1)
    assert AverageLinkage().fit_predict(points).tolist() == [0] * 7
    assert AverageLinkage(n_clusters=3).fit(points).n_clusters_ == 3


def test_a_number_of_clusters_that_links_forbid_is_refused():
    points = blobs(10, 2, 0)[0]
    with pytest.raises(ValueError, match=r"n_clusters \(2\) is below the 3 clusters that cannot_link keeps apart"):
        AverageLinkage(n_clusters=2).fit(points, cannot_link=[(0, 1), (1, 2), (0, 2)])
    with pytest.raises(ValueError, match="exceeds the 9 groups that must_link leaves"):
        AverageLinkage(n_clusters=10).fit(points, must_link=[(0, 1)])
    assert AverageLinkage(n_clusters=3).fit(points, cannot_link=[(0, 1), (1, 2), (0, 2)]).n_clusters_ == 3


@pytest.mark.parametrize("seed", range(10))
def test_without_a_threshold_merging_stops_where_plain_loops_find_the_most_persistent_clusters(seed):
    points = blobs(26, 2 + seed, seed, noise=0.1 * (seed + 1), dimension=3)[0]
    assert clusters_of(AverageLinkage().fit_predict(points)) == oracle.most_persistent(points)


@pytest.mark.parametrize("noise", [0.5, 1.5])
def test_clear_classes_are_found_without_labels(noise):
    rng, labels = np.random.default_rng(0), np.arange(10_000) % 200
    points = rng.normal(size=(200, 384)).astype(np.float32)[labels]
    points += noise * rng.standard_normal(points.shape, dtype=np.float32)
    found = AverageLinkage().fit(points / np.linalg.norm(points, axis=1, keepdims=True))
    assert found.n_clusters_ == 200
    assert adjusted_rand_score(labels, found.labels_) == 1.0


def test_weights_of_any_unit_leave_the_threshold_where_it_is():
    points, _ = blobs(300, 12, 0, noise=0.4)
    weights = np.random.default_rng(0).uniform(1.0, 3.0, 300)
    a, b = (AverageLinkage().fit(points, sample_weight=unit * weights) for unit in (0.3, 0.001))
    assert a.threshold_ == pytest.approx(b.threshold_)
    assert a.labels_.tolist() == b.labels_.tolist()
    np.testing.assert_allclose(a.ambiguity_, b.ambiguity_, atol=1e-6)


def test_classes_of_a_long_tail_are_found_without_labels():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), np.round(np.geomspace(100, 1, 40)).astype(int))
    points = rng.normal(size=(40, 64))[labels] + 0.5 * rng.normal(size=(len(labels), 64))
    for clusterer in (AverageLinkage(), AverageLinkage(metric="cosine")):
        assert clusterer.fit(points).n_clusters_ == 40
        assert (clusterer.predict(points) == clusterer.labels_).all()


def test_cosine_is_the_mean_cosine_distance():
    points = blobs(200, 12, 1, noise=0.3)[0]
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    a = AverageLinkage(0.2, metric="cosine").fit(points)
    b = AverageLinkage(np.sqrt(0.4)).fit(unit)
    assert a.labels_.tolist() == b.labels_.tolist()
    assert 5 < a.labels_.max() < 40
    assert (a.predict(3 * points[a.medoid_indices_]) == np.arange(a.labels_.max() + 1)).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("small_limits")
def test_neighbors_suffice_at_scale(seed, monkeypatch):
    points, labels = blobs(1500, 50, seed, noise=0.35)
    few = AverageLinkage(1.5, n_neighbors=16).fit(points).labels_
    monkeypatch.setattr(tree_module, "MAX_ALL_PAIRS", 2000)
    everything = AverageLinkage(1.5).fit(points).labels_
    assert adjusted_rand_score(few, everything) > 0.98
    scores = [adjusted_mutual_info_score(labels, clusters) for clusters in (few, everything)]
    assert scores[0] > scores[1] - 0.005 > 0.8


@pytest.mark.usefixtures("small_limits")
def test_clusters_larger_than_the_lists_of_neighbors_are_whole():
    points, labels = blobs(1200, 6, 4, noise=0.1)
    assert adjusted_rand_score(AverageLinkage(1.0, n_neighbors=5).fit_predict(points), labels) == 1.0


def test_a_threshold_suits_classes_of_any_size():
    rng = np.random.default_rng(0)
    sizes = [400, 100, 20, 5, 2, 1, 1]
    labels = np.repeat(np.arange(7), sizes)
    points = (3 * np.eye(7, 8))[labels] + 0.3 * rng.normal(size=(len(labels), 8))
    assert clusters_of(AverageLinkage(2.0).fit_predict(points)) == clusters_of(labels)


@pytest.mark.parametrize("seed", range(6))
def test_links_are_those_of_plain_loops(seed):
    points = blobs(20, 4, seed, noise=0.5, dimension=3)[0]
    rng = np.random.default_rng(seed)
    must, cannot = [(0, 7), (7, 11)], [(1, 5), (2, 3), (0, 13)]
    threshold = rng.uniform(0.8, 2.5)
    found = AverageLinkage(threshold).fit_predict(points, must_link=must, cannot_link=cannot)
    assert clusters_of(found) == oracle.average_linkage(points, threshold**2, must, cannot)


@pytest.mark.usefixtures("small_limits")
def test_links_are_respected_at_scale(monkeypatch):
    points, _ = blobs(600, 20, 6, noise=0.3)
    plain = AverageLinkage(1.2).fit_predict(points)
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 600, (4000, 2))
    must = pairs[plain[pairs[:, 0]] != plain[pairs[:, 1]]][:5]
    inside = pairs[(plain[pairs[:, 0]] == plain[pairs[:, 1]]) & (pairs[:, 0] != pairs[:, 1])]
    cannot = inside[~np.isin(inside, must).any(axis=1)][:10]
    for limit in (linkage_module.MAX_ALL_PAIRS, 100):  # ambiguity by all clusters, or by those in reach
        monkeypatch.setattr(linkage_module, "MAX_ALL_PAIRS", limit)
        found = AverageLinkage(1.2).fit(points, must_link=must, cannot_link=cannot)
        assert (found.labels_[must[:, 0]] == found.labels_[must[:, 1]]).all()
        assert (found.labels_[cannot[:, 0]] != found.labels_[cannot[:, 1]]).all()
        assert ((found.ambiguity_ >= 0) & (found.ambiguity_ <= 1)).all()
    with pytest.raises(ValueError, match="links contradict each other"):
        AverageLinkage(1.2).fit(points, must_link=[(0, 1)], cannot_link=[(1, 0)])


@pytest.mark.usefixtures("small_limits")
def test_doubts_in_reach_are_those_of_all_clusters(monkeypatch):
    points, _ = blobs(500, 20, 7, noise=0.4)
    a = AverageLinkage(1.3).fit(points).ambiguity_
    monkeypatch.setattr(linkage_module, "MAX_ALL_PAIRS", 100)
    b = AverageLinkage(1.3).fit(points).ambiguity_
    assert np.isclose(a, b, atol=1e-6).mean() > 0.98


def test_a_fit_repeats_and_does_not_depend_on_the_order():
    points, _ = blobs(400, 15, 6, noise=0.6)
    order = np.random.default_rng(0).permutation(400)
    a, b, c = (AverageLinkage(1.6).fit_predict(x) for x in (points, points, points[order]))
    assert a.tolist() == b.tolist()
    assert adjusted_rand_score(a[order], c) == 1.0


def test_new_points_join_the_nearest_cluster_or_none():
    points, _ = blobs(200, 8, 9, noise=0.1)
    found = AverageLinkage(1.0).fit(points)
    assert found.predict(points).tolist() == found.labels_.tolist()
    assert found.predict([[100.0] * 8]).tolist() == [-1]


def test_progress_is_reported():
    seen = []
    AverageLinkage(1.0, n_neighbors=8).fit(blobs(2500, 20, 1)[0], progress=lambda *step: seen.append(step))
    assert {name for name, _, _ in seen} == {"Neighbors", "Merging"}
    assert all(0 <= done <= total for _, done, total in seen)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("n", [1, 2, 500])
def test_equal_points_are_one_cluster(n):
    found = AverageLinkage(0.5, n_neighbors=4).fit(np.full((n, 3), 0.1))
    assert found.labels_.tolist() == [0] * n
    assert np.isfinite(found.ambiguity_).all()


@pytest.mark.parametrize(
    ("options", "points", "message"),
    [
        ({"threshold": 0.0}, np.eye(3), "threshold must be a finite number above 0; got 0.0"),
        ({"threshold": np.nan}, np.eye(3), "threshold must be a finite number"),
        ({"metric": "manhattan"}, np.eye(3), "metric must be one of euclidean, cosine"),
        ({"metric": "cosine"}, np.zeros((3, 2)), "vector 0 is zero"),
        ({"n_neighbors": 0}, np.eye(3), "n_neighbors must be an integer of at least 1"),
        ({"n_clusters": 4}, np.eye(3), r"n_clusters \(4\) must be an integer between 1 and the number of points \(3\)"),
        ({"n_clusters": 2.0}, np.eye(3), r"n_clusters \(2.0\) must be an integer"),
        ({}, np.full((3, 2), np.nan), "NaN"),
        ({}, 1e30 * np.eye(3), "within 1e18"),
    ],
)
def test_wrong_input_is_named(options, points, message):
    with pytest.raises(ValueError, match=message):
        AverageLinkage(**options).fit(points)


@pytest.mark.parametrize("seed", range(100))
def test_a_graph_without_some_edges_still_gives_a_tree(seed):
    """There a merged cluster can be nearer to a third one than the graph said, and chains come back to themselves."""
    rng = np.random.default_rng(seed)
    m = 40
    rows, columns = np.nonzero(np.triu(rng.random((m, m)) < 0.15, 1))
    points = rng.normal(size=(m, 2)).astype(np.float32)
    links = ((points[rows] - points[columns]) ** 2).sum(axis=1)
    graph = symmetric_lists(rows.astype(np.int32), columns.astype(np.int32), links, np.inf, m)
    nothing = symmetric_lists(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32), 0.0, m)
    clusters = tree_module.summaries(points, np.ones(m), np.arange(m))
    pairs, links = np.full((m, 2), -1, np.int32), np.empty(m)
    n_merges, parents = merge_near(clusters, graph, nothing, 50.0, m, pairs, links)
    assert n_merges == m - len(np.unique(parents))
    assert len({tuple(pair) for pair in pairs[:n_merges]}) == n_merges
    reached = oracle.components(m, zip(rows, columns, strict=True))  # with so high a limit, all that edges join
    assert len(np.unique(parents)) == len(reached)
