"""What a calibration expects of sets that it has not seen."""

import functools

import numpy as np
import pytest

from clustering.clouds import blobs
from facetric.clustering import calibrate
from facetric.clustering.expected import Agreement, PairRates, Sample


@functools.cache
def data():
    return blobs(4000, 240, 5, noise=0.4)


@functools.cache
def calibrated():
    vectors, labels = data()
    return calibrate(vectors[labels < 40], labels[labels < 40])


def expected_and_real(calibration, vectors, labels):
    clusters = calibration.clusterer().fit_predict(vectors)
    return calibration.expected(vectors, clusters), Agreement.of(labels, clusters)


def test_rates_are_what_counting_pairs_gives():
    rng = np.random.default_rng(0)
    classes, clusters = rng.integers(0, 5, 50), rng.integers(0, 7, 50)
    pairs = [(i, j) for i in range(50) for j in range(i)]
    same = [(i, j) for i, j in pairs if classes[i] == classes[j]]
    different = [pair for pair in pairs if pair not in same]
    found = PairRates.of(classes, clusters)
    assert found.right == pytest.approx(sum(clusters[i] == clusters[j] for i, j in same) / len(same))
    assert found.wrong == pytest.approx(sum(clusters[i] == clusters[j] for i, j in different) / len(different))
    shares = [(clusters == c).mean() for c in range(7)]
    assert found.same == pytest.approx(len(same) / len(pairs) * np.exp(-sum(x * np.log(x) for x in shares)))


def test_the_precision_of_a_set_follows_from_its_own_rates():
    vectors, labels = data()
    clusters = calibrated().clusterer().fit_predict(vectors)
    expected = PairRates.of(labels, clusters).expected_precision(clusters).value
    assert expected == pytest.approx(Agreement.of(labels, clusters).pairwise_precision)


def test_the_distance_between_groups_is_the_tenth_percentile_of_pairs_that_no_group_holds():
    rng = np.random.default_rng(1)
    vectors, groups = rng.normal(size=(60, 3)).astype(np.float32), rng.integers(0, 4, 60)
    distances = [np.linalg.norm(vectors[i] - vectors[j]) for i in range(60) for j in range(i) if groups[i] != groups[j]]
    assert Sample(vectors).distance_between(groups) == pytest.approx(np.quantile(distances, 0.1), rel=1e-5)
    assert Sample(vectors).distance_between(np.zeros(60, int)) == 0


@pytest.mark.parametrize("n_classes", [10, 40, 100, 200])
@pytest.mark.parametrize("n_finer", [0, 4])
def test_the_expected_precision_holds_whatever_the_number_of_classes(n_classes, n_finer):
    vectors, labels = data()
    rows = (labels >= 40) & (labels < 40 + n_classes)
    expected, real = expected_and_real(calibrated().finer(n_finer), vectors[rows], labels[rows])
    assert expected.precision.low <= real.pairwise_precision <= expected.precision.high
    assert expected.precision.value == pytest.approx(real.pairwise_precision, abs=0.15)
    assert expected.recall == pytest.approx(calibrated().finer(n_finer).reached.pairwise_recall)


def test_many_classes_are_expected_to_have_less_precision_than_the_few_of_the_calibration():
    vectors, labels = data()
    expected, real = expected_and_real(calibrated(), vectors[labels >= 40], labels[labels >= 40])
    assert real.pairwise_precision < calibrated().reached.pairwise_precision - 0.1
    assert expected.precision.value < calibrated().reached.pairwise_precision - 0.1


def test_classes_that_lie_nearer_are_expected_to_have_less_precision():
    vectors, labels = data()
    rows = (labels >= 40) & (labels < 80)
    means = np.array([vectors[labels == c].mean(axis=0) for c in range(240)])
    nearer = vectors[rows] - 0.2 * means[labels[rows]]
    expected, real = expected_and_real(calibrated(), nearer, labels[rows])
    as_before, _ = expected_and_real(calibrated(), vectors[rows], labels[rows])
    assert expected.precision.value < as_before.precision.value - 0.1
    assert expected.precision.low <= real.pairwise_precision <= expected.precision.high


def test_a_wider_spread_is_a_wider_interval_around_the_same_value():
    clusters = np.arange(400) // 5
    narrow, wide = (PairRates(0.8, 0.002, 1.0).expected_precision(clusters, spread) for spread in (0.2, 0.8))
    assert narrow.value == wide.value
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high < 1
    assert str(narrow) == f"{100 * narrow.low:.0f}–{100 * narrow.high:.0f}%"


def test_a_set_of_few_classes_may_have_none_that_are_alike():
    few, many = (PairRates(0.8, 0.002, 1.0).expected_precision(np.arange(n) // 5, 0.2) for n in (50, 400))
    assert few.high == 1 > many.high


def test_a_set_in_one_cluster_is_expected_to_reach_something_finite():
    expected = calibrated().expected(np.ones((6, 8)), np.zeros(6, int))
    assert 0 <= expected.precision.low <= expected.precision.value <= expected.precision.high <= 1


def test_clusters_of_other_points_are_refused():
    with pytest.raises(ValueError, match=r"one cluster each; got \(3, 2\) and 2 clusters: pass both"):
        calibrated().expected(np.zeros((3, 2)), [0, 1])
