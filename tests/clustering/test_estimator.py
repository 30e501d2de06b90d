"""FacilityLocation as its users meet it."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score
from sklearn.utils.estimator_checks import estimator_checks_generator

from clustering.clouds import blobs, distances
from facetric.clustering import AverageLinkage, FacilityLocation, PairLinkage
from oracles import medoids as oracle

ESTIMATORS = [
    FacilityLocation(n_clusters=3),
    FacilityLocation(n_clusters=3, centers="medoids"),
    FacilityLocation(n_clusters=3, metric="cosine", squared=True, centers="medoids"),
    FacilityLocation(n_clusters=3, metric="precomputed", centers="medoids"),
    FacilityLocation(opening_cost=1.0),
    FacilityLocation(opening_cost=0.5, metric="precomputed"),
    FacilityLocation(n_clusters=3, opening_cost=1.0),
    AverageLinkage(),
    AverageLinkage(0.7),
    AverageLinkage(threshold=0.2, metric="cosine"),
    AverageLinkage(n_clusters=3),
    AverageLinkage(0.7, n_clusters=3),
    PairLinkage(),
    PairLinkage(n_clusters=3),
]
EXCEPTIONS = {
    # it compares numbers of clusters, which are by row, as KMeans'
    "check_sample_weight_equivalence_on_dense_data": lambda _: True,
    "check_clustering": lambda estimator: getattr(estimator, "metric", "") == "precomputed",  # it passes vectors
    "check_estimators_dtypes": lambda estimator: getattr(estimator, "metric", "cosine") == "cosine",  # it passes zero vectors
}


def checks():
    for estimator in ESTIMATORS:
        for _, check in estimator_checks_generator(estimator):
            name = getattr(check, "func", check).__name__
            if not EXCEPTIONS.get(name, lambda _: False)(estimator):
                yield pytest.param(estimator, check, id=f"{estimator}-{name}")


@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_it_is_a_scikit_learn_clusterer(estimator, check):
    check(clone(estimator))


WEIGHED = [
    FacilityLocation(n_clusters=8),
    FacilityLocation(n_clusters=8, centers="medoids"),
    FacilityLocation(n_clusters=8, centers="medoids", metric="cosine", squared=True),
    FacilityLocation(opening_cost=8.0),  # with a small one there are pairs, either of which could be the medoid
    FacilityLocation(n_clusters=4, opening_cost=8.0),
    AverageLinkage(1.3),
    AverageLinkage(n_clusters=8),
    AverageLinkage(),
]


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("clusterer", WEIGHED, ids=str)
def test_weights_are_rows_that_are_repeated(clusterer, seed, linked):
    linked &= getattr(clusterer, "opening_cost", None) is None  # another search than that of rows that are linked to each other
    points, _ = blobs(90, 8, seed, noise=0.5)
    weights = np.random.default_rng(seed).integers(1, 5, 90)
    row_of, first = np.repeat(np.arange(90), weights), np.concatenate([[0], np.cumsum(weights)[:-1]])
    must, cannot = np.array([(0, 40), (3, 7)]), np.array([(1, 2), (5, 6)])
    copies = np.array([(first[i], j) for i in range(90) for j in range(first[i] + 1, first[i] + weights[i])])
    links = [(must, cannot), (np.concatenate([first[must], copies]), first[cannot])] if linked else [(None, None)] * 2
    once = clone(clusterer).fit(points, None, weights, must_link=links[0][0], cannot_link=links[0][1])
    often = clone(clusterer).fit(points[row_of], must_link=links[1][0], cannot_link=links[1][1])
    assert once.labels_[row_of].tolist() == often.labels_.tolist()
    assert once.n_clusters_ == often.n_clusters_ == often.labels_.max() + 1
    np.testing.assert_allclose(once.cluster_centers_, often.cluster_centers_, atol=1e-5)
    np.testing.assert_allclose(once.ambiguity_[row_of], often.ambiguity_, atol=1e-3)
    if isinstance(clusterer, FacilityLocation):
        assert once.objective_ == pytest.approx(often.objective_, rel=1e-6)
        assert once.score(points, None, weights) == pytest.approx(often.score(points[row_of]), rel=1e-6)
        assert row_of[often.medoid_indices_].tolist() == once.medoid_indices_.tolist()
    else:
        assert once.threshold_ == pytest.approx(often.threshold_, rel=1e-5)


@pytest.mark.parametrize("estimator", [each for each in ESTIMATORS if isinstance(each, FacilityLocation)], ids=str)
def test_the_score_is_minus_the_objective_and_the_nearest_center_the_cluster(estimator):
    points, _ = blobs(60, 6, 1, noise=0.6)
    X = distances(points) if estimator.metric == "precomputed" else points
    found = clone(estimator).fit(X)
    assert found.score(X) == pytest.approx(-found.objective_, rel=1e-5)
    assert found.score(X[:30]) >= found.score(X)
    to_centers = found.transform(X)
    assert to_centers.shape == (60, found.n_clusters_) == (60, len(found.medoid_indices_))
    assert to_centers.argmin(axis=1).tolist() == found.labels_.tolist()
    if estimator.metric == "euclidean":
        expected = np.linalg.norm(points[:, None] - found.cluster_centers_, axis=2)
        np.testing.assert_allclose(to_centers, expected, atol=1e-5)
    assert found.set_output(transform="pandas").transform(X).columns[0] == "facilitylocation0"


def test_a_row_far_from_all_costs_its_own_opening():
    found = FacilityLocation(opening_cost=1.0).fit([[0.0], [0.1], [5.0]])
    assert found.score([[0.0], [100.0]]) == pytest.approx(-(0.0 + 1.0) - 2 * 1.0)
    assert found.score([[0.0], [100.0]], sample_weight=[1, 7]) == pytest.approx(-(0.0 + 7.0) - 2 * 1.0)


@pytest.mark.parametrize("n_clusters", [2, 8, 30])
def test_with_an_opening_cost_a_number_of_clusters_is_the_most_there_may_be(n_clusters):
    points, _ = blobs(150, 8, 3, noise=0.2)
    plain = FacilityLocation(opening_cost=2.0).fit(points)
    found = FacilityLocation(n_clusters, opening_cost=2.0).fit(points)
    assert plain.n_clusters_ == 8
    assert found.n_clusters_ == min(n_clusters, 8)
    assert found.objective_ >= plain.objective_
    if n_clusters == 2:
        fixed = FacilityLocation(2, centers="medoids").fit(points)
        assert found.labels_.tolist() == found.predict(points).tolist() == fixed.labels_.tolist()
        assert found.objective_ == pytest.approx(fixed.objective_ + 2 * 2.0)
    else:
        assert found.labels_.tolist() == plain.labels_.tolist()


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("squared", [False, True])
def test_vectors_and_their_distances_give_the_same_medoids(metric, squared):
    points, _ = blobs(150, 10, 3, noise=0.5)
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    matrix = distances(points) if metric == "euclidean" else 1 - unit @ unit.T
    np.fill_diagonal(matrix, 0)
    matrix = np.maximum(matrix, 0)
    for options in ({"n_clusters": 10, "centers": "medoids"}, {"opening_cost": 0.7}):
        a = FacilityLocation(metric=metric, squared=squared, **options).fit(points)
        b = FacilityLocation(metric="precomputed", squared=squared, **options).fit(matrix)
        assert a.medoid_indices_.tolist() == b.medoid_indices_.tolist()
        assert a.labels_.tolist() == b.labels_.tolist()
        assert a.objective_ == pytest.approx(b.objective_, rel=1e-5)
        np.testing.assert_allclose(a.ambiguity_, b.ambiguity_, atol=1e-4)


def test_the_objective_and_the_labels_are_those_of_the_medoids():
    points, _ = blobs(60, 6, 1, noise=0.6)
    cost = distances(points)
    for options, price in (({"n_clusters": 6, "centers": "medoids"}, 0.0), ({"opening_cost": 1.2}, 1.2)):
        found = FacilityLocation(**options).fit(points)
        assert found.objective_ == pytest.approx(oracle.objective(cost, found.medoid_indices_.tolist(), price), rel=1e-6)
        assert found.labels_.tolist() == cost[:, found.medoid_indices_].argmin(axis=1).tolist()
        assert found.predict(points).tolist() == found.labels_.tolist()
        np.testing.assert_allclose(found.cluster_centers_, points[found.medoid_indices_], atol=1e-5)


def test_nobody_travels_farther_than_the_opening_cost_and_the_lonely_stay_alone():
    points, _ = blobs(200, 20, 2, noise=0.3)
    points = np.concatenate([points, [[50.0] * 8, [-70.0] * 8]])
    found = FacilityLocation(opening_cost=1.0).fit(points)
    to_medoid = np.linalg.norm(points - found.cluster_centers_[found.labels_], axis=1)
    assert to_medoid.max() <= 1.0 + 1e-5
    sizes = np.bincount(found.labels_)
    assert sizes[found.labels_[200]] == sizes[found.labels_[201]] == 1
    assert found.predict([[0.0] * 7 + [1000.0]]).tolist() == [-1]


def test_every_cluster_saves_more_than_its_opening_cost():
    points, _ = blobs(80, 8, 5, noise=0.5)
    cost, price = distances(points), 1.5
    S = FacilityLocation(opening_cost=price).fit(points).medoid_indices_.tolist()
    now = oracle.objective(cost, S, price)
    assert len(S) > 1
    for m in S:
        assert now <= oracle.objective(cost, [other for other in S if other != m], price) + 1e-6


@pytest.mark.parametrize("price", [None, 1.5])
def test_ambiguity_is_the_own_cost_over_the_next_best(price):
    points, _ = blobs(70, 7, 4, noise=0.7)
    options = {"n_clusters": 7, "centers": "medoids"} if price is None else {"opening_cost": price}
    found = FacilityLocation(**options).fit(points)
    expected = oracle.ambiguity(distances(points), found.medoid_indices_.tolist(), found.labels_.tolist(), price)
    np.testing.assert_allclose(found.ambiguity_, expected, atol=1e-5)
    assert found.ambiguity_.min() == 0
    assert 0.5 < found.ambiguity_.max() <= 1


def test_ambiguity_with_means_is_about_means():
    points, _ = blobs(90, 6, 4, noise=0.8)
    found = FacilityLocation(n_clusters=6).fit(points)
    to_centers = np.sort(np.linalg.norm(points[:, None] - found.cluster_centers_, axis=2), axis=1)
    np.testing.assert_allclose(found.ambiguity_, to_centers[:, 0] / to_centers[:, 1], atol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_means_are_a_fixed_point_of_k_means_and_no_worse_than_ten_starts(seed):
    points, labels = blobs(1500, 60, seed, noise=0.45)
    found = FacilityLocation(n_clusters=60).fit(points)
    centers = np.stack([points[found.labels_ == k].mean(axis=0) for k in range(60)])
    np.testing.assert_allclose(found.cluster_centers_, centers, atol=1e-5)
    assert found.objective_ == pytest.approx(((points - centers[found.labels_]) ** 2).sum(), rel=1e-6)
    theirs = KMeans(60, n_init=10, random_state=seed).fit(points)
    assert found.objective_ <= theirs.inertia_ * 1.005
    assert adjusted_mutual_info_score(labels, found.labels_) >= adjusted_mutual_info_score(labels, theirs.labels_) - 0.01


def test_a_fit_can_be_repeated_and_does_not_depend_on_the_order():
    points, _ = blobs(300, 15, 6, noise=0.6)
    order = np.random.default_rng(0).permutation(300)
    for options in ({"n_clusters": 15}, {"n_clusters": 15, "centers": "medoids"}, {"opening_cost": 1.3}):
        a, b, c = (FacilityLocation(**options).fit(x) for x in (points, points, points[order]))
        assert a.labels_.tolist() == b.labels_.tolist()
        assert adjusted_mutual_info_score(a.labels_[order], c.labels_) == pytest.approx(1.0)
        assert a.objective_ == pytest.approx(c.objective_, rel=1e-6)


def test_precomputed_rows_are_points_and_columns_medoids():
    cost = np.array([[0.0, 0.1, 9.0], [9.0, 0.0, 9.0], [9.0, 0.1, 0.0]])  # all can reach 1 cheaply, nobody else is cheap
    found = FacilityLocation(n_clusters=1, metric="precomputed").fit(cost)
    assert found.medoid_indices_.tolist() == [1]
    assert found.predict(np.array([[5.0, 1.0, 7.0]])).tolist() == [0]


def test_large_offsets_lose_nothing():
    points, labels = blobs(100, 5, 9, noise=0.1)
    for options in ({"n_clusters": 5}, {"opening_cost": 2.0}):
        found = FacilityLocation(**options).fit(points + 1e6)
        assert adjusted_mutual_info_score(labels, found.labels_) == pytest.approx(1.0)
        assert found.predict(points + 1e6).tolist() == found.labels_.tolist()


@pytest.mark.parametrize("clusterer", [AverageLinkage(0.5), FacilityLocation(opening_cost=0.5)])
def test_nothing_but_fit_changes_a_fit(clusterer):
    points = np.array([[0.0], [0.1], [5.0], [5.1]])
    found = clusterer.fit(points).predict(points)
    public = [name for name in dir(clusterer) if not name.startswith("_") and callable(getattr(clusterer, name))]
    assert not {"path", "partial_fit"} & set(public)
    assert (clusterer.predict(points + 100) == -1).all()
    with pytest.raises(ValueError, match="features"):
        clusterer.predict(np.ones((2, 3)))
    assert clusterer.predict(points).tolist() == found.tolist() == clusterer.labels_.tolist()
    assert clusterer.n_features_in_ == 1
