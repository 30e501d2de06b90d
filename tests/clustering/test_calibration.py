"""The choice of a setting on labeled classes, and what it promises."""

import json

import numpy as np
import pytest

from clustering.piles import blobs
from facetric.clustering import Agreement, Calibration, calibrate
from facetric.clustering.calibration import resampled_piles


def test_agreement_is_what_counting_pairs_and_points_gives():
    rng = np.random.default_rng(0)
    classes, clusters = rng.integers(0, 5, 60), rng.integers(0, 7, 60)
    pairs = [(i, j) for i in range(60) for j in range(60) if i != j]
    both = sum(classes[i] == classes[j] and clusters[i] == clusters[j] for i, j in pairs)
    found = Agreement.of(classes, clusters)
    assert found.pairwise_precision == pytest.approx(both / sum(clusters[i] == clusters[j] for i, j in pairs))
    assert found.pairwise_recall == pytest.approx(both / sum(classes[i] == classes[j] for i, j in pairs))
    precision = np.mean([(classes[clusters == clusters[i]] == classes[i]).mean() for i in range(60)])
    recall = np.mean([(clusters[classes == classes[i]] == clusters[i]).mean() for i in range(60)])
    assert found.bcubed_precision == pytest.approx(precision)
    assert found.bcubed_recall == pytest.approx(recall)
    assert found.score == pytest.approx((found.bcubed_f1 + found.pairwise_f1) / 2)
    assert found.bcubed_f1 == pytest.approx(2 * precision * recall / (precision + recall))


def test_everyone_alone_is_precise():
    found = Agreement.of([0, 0, 1, 1], [0, 1, 2, 3])
    assert (found.pairwise_precision, found.pairwise_recall) == (1.0, 0.0)
    assert (found.bcubed_precision, found.bcubed_recall) == (1.0, 0.5)


def test_piles_have_the_shapes_they_are_named_for():
    classes = np.repeat(np.arange(30), 40)
    piles = resampled_piles(classes, seed=0)
    sizes = {name: np.sort(np.bincount(classes[rows], minlength=30))[::-1] for name, rows in piles.items()}
    assert sizes["whole classes"].tolist() == [40] * 15 + [0] * 15
    assert sizes["five per class"].tolist() == [5] * 30
    assert (sizes["long tail"][0], sizes["long tail"][-1]) == (20, 2)
    lonely = sizes["long tail and lonely"]
    assert (lonely[0], lonely[14], lonely[15], lonely[-1]) == (20, 2, 1, 1)
    for rows in piles.values():
        assert len(set(rows.tolist())) == len(rows)
    assert piles["long tail"].tolist() == resampled_piles(classes, seed=0)["long tail"].tolist()
    assert piles["long tail"].tolist() != resampled_piles(classes, seed=1)["long tail"].tolist()


@pytest.mark.parametrize("method", ["facility_location", "average_linkage", None])
def test_the_promise_holds_on_other_classes(method):
    vectors, labels = blobs(2400, 80, 0, noise=0.35)
    known = labels < 40
    found = calibrate(vectors[known], labels[known], method=method)
    if method is not None:
        assert found.method == method
    real = {}
    for seed in range(3):
        for name, rows in resampled_piles(labels[~known] - 40, seed).items():
            scores = Agreement.of(labels[~known][rows], found.clusterer().fit_predict(vectors[~known][rows]))
            real.setdefault(name, []).append(scores.bcubed_f1)
    assert np.mean(list(real.values())) == pytest.approx(found.expected.bcubed_f1, abs=0.1)
    if found.method == "average_linkage":  # for the others, a promise holds on average but not on every kind of pile
        for name, values in real.items():
            assert np.mean(values) == pytest.approx(found.piles[name].bcubed_f1, abs=0.1)
    assert 0.5 < found.expected.bcubed_f1 <= 1


def test_the_best_method_on_the_piles_is_chosen():
    vectors, labels = blobs(900, 30, 1, noise=0.4)
    best = calibrate(vectors, labels)
    each = [calibrate(vectors, labels, method=m) for m in ("facility_location", "average_linkage")]
    scores = [np.mean([pile.score for pile in one.piles.values()]) for one in each]
    assert best == each[int(np.argmax(scores))]


def test_a_giant_cluster_beside_many_alone_scores_low():
    classes = np.repeat(np.arange(40), 5)
    giant = np.where(np.arange(200) % 5 < 2, 0, 1 + np.arange(200))  # two of every class in one cluster, the others alone
    halves = np.arange(200) // 5 * 2 + (np.arange(200) % 5 < 2)  # every class in two
    assert Agreement.of(classes, giant).score < 0.35
    assert Agreement.of(classes, halves).score > 0.6


def test_a_calibration_survives_a_file():
    vectors, labels = blobs(300, 12, 2)
    found = calibrate(vectors, labels, n_repeats=1)
    assert Calibration.from_dict(json.loads(json.dumps(found.as_dict()))) == found


@pytest.mark.parametrize(
    ("vectors", "labels", "options", "message"),
    [
        (np.zeros((6, 2)), [0, 0, 1, 1, 2, 2], {}, "at least 4 classes, 2 of them with several images; got 3 and 3"),
        (np.zeros((4, 2)), [0, 1, 2, 3], {}, "got 4 and 0"),
        (np.zeros((4, 2)), [0, 1, 2], {}, "one label each; got"),
        (np.full((8, 2), np.nan), np.arange(8) % 4, {}, "must be finite"),
        (np.zeros((8, 2)), np.arange(8) % 4, {"method": "magic"}, "method must be one of facility_location, average_linkage"),
    ],
)
def test_wrong_input_is_named(vectors, labels, options, message):
    with pytest.raises(ValueError, match=message):
        calibrate(vectors, labels, **options)


def test_equal_vectors_are_calibrated_without_complaint():
    found = calibrate(np.ones((40, 3)), np.arange(40) % 8, n_repeats=1)
    assert np.isfinite(found.threshold)
