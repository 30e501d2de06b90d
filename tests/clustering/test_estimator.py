"""FacilityLocation as its users meet it."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score
from sklearn.utils.estimator_checks import estimator_checks_generator

from clustering.clouds import blobs, distances
from facetric.clustering import AverageLinkage, FacilityLocation
from oracles import medoids as oracle

ESTIMATORS = [
    FacilityLocation(n_clusters=3),
    FacilityLocation(n_clusters=3, centers="medoids"),
    FacilityLocation(n_clusters=3, metric="precomputed", centers="medoids"),
    FacilityLocation(opening_cost=1.0),
    FacilityLocation(opening_cost=0.5, metric="precomputed"),
]


SETS_N_CLUSTERS = {  # scikit-learn gives these a number of clusters because there is such an option: then there would be both
    "check_dont_overwrite_parameters", "check_clustering", "check_methods_sample_order_invariance",
    "check_methods_subset_invariance", "check_fit2d_1sample", "check_fit2d_1feature", "check_fit2d_predict1d",
}  # fmt: skip
PASSES_VECTORS = {"check_clustering"}  # whatever the metric


def checks():
    for estimator in ESTIMATORS:
        for _, check in estimator_checks_generator(estimator):
            name = getattr(check, "func", check).__name__
            if (estimator.opening_cost and name in SETS_N_CLUSTERS) or (
                estimator.metric == "precomputed" and name in PASSES_VECTORS
            ):
                continue
            yield pytest.param(estimator, check, id=f"{estimator}-{name}".replace("FacilityLocation", ""))


@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_it_is_a_scikit_learn_clusterer(estimator, check):
    from sklearn.base import clone

    check(clone(estimator))


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
