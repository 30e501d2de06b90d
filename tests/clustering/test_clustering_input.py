"""Input that cannot be clustered gets one clear line; what can be, a defined result."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from facetric.clustering import AverageLinkage, FacilityLocation

POINTS = np.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "pass n_clusters, opening_cost or both; got neither"),
        ({"n_clusters": 7}, r"n_clusters \(7\) must be an integer between 1 and the number of points \(6\)"),
        ({"n_clusters": 0}, r"n_clusters \(0\)"),
        ({"n_clusters": 2.5}, r"n_clusters \(2.5\)"),
        ({"opening_cost": 0.0}, "opening_cost must be a finite number above 0; got 0.0"),
        ({"opening_cost": np.nan}, "opening_cost must be a finite number"),
        ({"opening_cost": 1.0, "centers": "means"}, "centers='means' needs n_clusters"),
        ({"n_clusters": 2, "centers": "modes"}, "centers must be 'means' or 'medoids'; got 'modes'"),
        ({"n_clusters": 2, "metric": "manhattan"}, "metric must be one of euclidean, cosine, precomputed"),
        ({"n_clusters": 2, "metric": "precomputed"}, "must be square"),
        ({"n_clusters": 2, "metric": "precomputed", "centers": "means"}, "centers='means' needs vectors"),
        ({"n_clusters": 2, "n_neighbors": 0}, "n_neighbors must be an integer of at least 1"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        FacilityLocation(**options).fit(POINTS)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(value):
    points = POINTS.copy()
    points[3, 1] = value
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        FacilityLocation(n_clusters=2).fit(points)
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        FacilityLocation(opening_cost=1.0, metric="precomputed").fit(np.array([[0, value], [1, 0]]))


def test_wrong_distances_are_named():
    estimator = FacilityLocation(opening_cost=1.0, metric="precomputed")
    with pytest.raises(ValueError, match="distances must be at least 0; got -1"):
        estimator.fit(np.array([[0.0, -1], [1, 0]]))
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        estimator.fit(csr_array(np.array([[0.0, 1], [1, 0]])))
    with pytest.raises(ValueError, match="distance of a point to itself must be 0; got 2"):
        estimator.fit(np.array([[2.0, 1], [1, 0]]))


def test_a_zero_vector_has_no_cosine():
    with pytest.raises(ValueError, match="vector 0 is zero"):
        FacilityLocation(n_clusters=2, metric="cosine").fit(np.array([[0.0, 0], [1, 0], [0, 1]]))


def test_vectors_beyond_float32_are_refused():
    with pytest.raises(ValueError, match="within 1e18"):
        FacilityLocation(n_clusters=2).fit(POINTS * 1e30)


@pytest.mark.parametrize("options", [{"n_clusters": 1}, {"n_clusters": 1, "centers": "medoids"}, {"opening_cost": 1.0}])
def test_one_point_is_one_cluster(options):
    found = FacilityLocation(**options).fit([[3.0, 4.0]])
    assert found.labels_.tolist() == [0]
    assert found.medoid_indices_.tolist() == [0]
    assert found.ambiguity_.tolist() == [0.0]
    np.testing.assert_allclose(found.cluster_centers_, [[3.0, 4.0]])


def test_equal_points_are_one_cluster_or_as_many_as_asked_for():
    points = np.full((7, 3), 0.1)
    found = FacilityLocation(opening_cost=0.5).fit(points)
    assert found.labels_.tolist() == [0] * 7
    assert found.objective_ == 0.5
    for centers in ("medoids", "means"):
        found = FacilityLocation(n_clusters=3, centers=centers).fit(points)
        assert sorted(set(found.labels_.tolist())) == [0, 1, 2]
        assert found.objective_ == pytest.approx(0.0)
        assert np.isfinite(found.ambiguity_).all()


def test_as_many_clusters_as_points():
    for centers in ("medoids", "means"):
        assert FacilityLocation(n_clusters=6, centers=centers).fit_predict(POINTS).tolist() == list(range(6))


@pytest.mark.parametrize("value", ["1", [1.0], 1j, True, float("nan"), 0])
def test_a_threshold_that_is_no_positive_number_is_refused(value):
    points = np.zeros((4, 2))
    with pytest.raises(ValueError, match=r"^threshold must be a finite number above 0; got "):
        AverageLinkage(value).fit(points)
    with pytest.raises(ValueError, match=r"^opening_cost must be a finite number above 0; got "):
        FacilityLocation(opening_cost=value).fit(points)


@pytest.mark.parametrize("clusterer", [AverageLinkage(1.0), FacilityLocation(2)], ids=["linkage", "facilities"])
@pytest.mark.parametrize("weights", [[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, -1], [1, 1, 1, 1, 1, np.nan], [1, 1], [[1.0] * 6]])
def test_a_weight_that_is_no_positive_number_is_refused(clusterer, weights):
    with pytest.raises(ValueError, match="sample_weight must be 6 finite numbers above 0"):
        clusterer.fit(POINTS, sample_weight=weights)
