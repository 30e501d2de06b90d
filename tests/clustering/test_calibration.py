"""The choice of a setting on labeled classes, and what to expect of it."""

import functools
import json

import numpy as np
import pytest

from clustering.clouds import blobs
from facetric.clustering import Calibration, calibrate
from facetric.clustering.calibration import resampled_sets
from facetric.clustering.expected import Agreement


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


def test_sets_have_the_shapes_they_are_named_for():
    classes = np.repeat(np.arange(30), 40)
    sets = resampled_sets(classes, seed=0)
    sizes = {name: np.sort(np.bincount(classes[rows], minlength=30))[::-1] for name, rows in sets.items()}
    assert sizes["whole classes"].tolist() == [40] * 15 + [0] * 15
    assert sizes["five per class"].tolist() == [5] * 30
    assert (sizes["long tail"][0], sizes["long tail"][-1]) == (20, 2)
    lonely = sizes["long tail and lonely"]
    assert (lonely[0], lonely[14], lonely[15], lonely[-1]) == (20, 2, 1, 1)
    for rows in sets.values():
        assert len(set(rows.tolist())) == len(rows)
    assert sets["long tail"].tolist() == resampled_sets(classes, seed=0)["long tail"].tolist()
    assert sets["long tail"].tolist() != resampled_sets(classes, seed=1)["long tail"].tolist()


def test_sets_that_are_too_large_keep_their_shape():
    classes = np.repeat(np.arange(200), 30)
    sizes = {
        name: np.bincount(np.bincount(classes[rows])) for name, rows in resampled_sets(classes, seed=0, max_points=300).items()
    }
    for name, counts in sizes.items():
        assert 200 < (np.arange(len(counts)) * counts).sum() <= 330, name
    assert sizes["long tail"][2] > 0
    assert sizes["long tail"][20] > 0
    lonely = sizes["long tail and lonely"]
    assert lonely[1] == pytest.approx(lonely[2:].sum(), abs=2)


def test_the_promise_holds_on_other_classes():
    vectors, labels = blobs(2400, 80, 0, noise=0.35)
    known = labels < 40
    found = calibrate(vectors[known], labels[known])
    real = {}
    for seed in range(3):
        for name, rows in resampled_sets(labels[~known] - 40, seed).items():
            scores = Agreement.of(labels[~known][rows], found.clusterer().fit_predict(vectors[~known][rows]))
            real.setdefault(name, []).append(scores.bcubed_f1)
    assert np.mean(list(real.values())) == pytest.approx(found.reached.bcubed_f1, abs=0.1)
    for name, values in real.items():
        assert np.mean(values) == pytest.approx(found.steps[found.position].by_set[name].bcubed_f1, abs=0.1)
    assert 0.5 < found.reached.bcubed_f1 <= 1


def test_average_linkage_holds_up_when_classes_are_larger_than_those_of_the_calibration():
    vectors, labels = blobs(4000, 40, 3, noise=0.25)
    few = np.concatenate([np.flatnonzero(labels == c)[:6] for c in range(20)])
    other = labels >= 20
    found = calibrate(vectors[few], labels[few])
    assert Agreement.of(labels[other], found.clusterer().fit_predict(vectors[other])).score > 0.9


def test_every_step_is_what_its_clusterer_finds():
    vectors, labels = blobs(300, 12, 8, noise=0.5)
    found = calibrate(vectors, labels, n_repeats=1)
    rows = resampled_sets(labels, 0)["whole classes"]
    for step in (found.finer(5), found, found.coarser(5)):
        clusters = step.clusterer().fit_predict(vectors[rows])
        assert Agreement.of(labels[rows], clusters) == step.steps[step.position].by_set["whole classes"]


def test_the_threshold_is_the_best_of_all_steps():
    vectors, labels = blobs(900, 30, 1, noise=0.4)
    found = calibrate(vectors, labels)
    scores = [np.mean([one.score for one in step.by_set.values()]) for step in found.steps]
    assert scores[found.position] == max(scores)
    thresholds = [step.threshold for step in found.steps]
    assert thresholds == sorted(thresholds)


def test_finer_steps_promise_precision_and_coarser_ones_recall():
    vectors, labels = blobs(900, 30, 1, noise=0.4)
    found = calibrate(vectors, labels)
    finer, coarser = found.finer(3), found.coarser(3)
    assert finer.threshold < found.threshold < coarser.threshold
    assert finer.reached.pairwise_precision > found.reached.pairwise_precision > coarser.reached.pairwise_precision
    assert finer.reached.pairwise_recall < found.reached.pairwise_recall < coarser.reached.pairwise_recall
    assert finer.coarser(3) == found
    assert found.finer(1000).position == 0
    assert found.coarser(1000).position == len(found.steps) - 1
    numbers = [len(set(one.clusterer().fit_predict(vectors).tolist())) for one in (finer, found, coarser)]
    assert numbers[0] > numbers[1] > numbers[2]


def test_a_wanted_precision_gets_the_coarsest_step_that_promises_it():
    vectors, labels = blobs(900, 30, 1, noise=0.4)
    found = calibrate(vectors, labels).with_precision(0.9)
    assert found.reached.pairwise_precision >= 0.9 > found.coarser().reached.pairwise_precision
    with pytest.raises(ValueError, match="precision must lie between 0 and 1; got 95"):
        found.with_precision(95)
    mixed = calibrate(np.ones((40, 3)), np.arange(40) % 8, n_repeats=1)
    with pytest.raises(ValueError, match=r"no threshold reached a pairwise precision of 0.9; the best was 0\.\d+: ask for less"):
        mixed.with_precision(0.9)


def test_a_giant_cluster_beside_many_alone_scores_low():
    classes = np.repeat(np.arange(40), 5)
    giant = np.where(np.arange(200) % 5 < 2, 0, 1 + np.arange(200))  # two of every class in one cluster, the others alone
    halves = np.arange(200) // 5 * 2 + (np.arange(200) % 5 < 2)  # every class in two
    assert Agreement.of(classes, giant).score < 0.35
    assert Agreement.of(classes, halves).score > 0.6


@functools.cache
def stored():
    vectors, labels = blobs(300, 12, 2)
    return calibrate(vectors, labels, n_repeats=1)


def test_a_calibration_survives_a_file():
    found = stored()
    assert Calibration.from_dict(json.loads(json.dumps(found.as_dict()))) == found


def without(record, name):
    return {key: value for key, value in record.items() if key != name}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: without(r, "format"), "must have format 3; got None: calibrate again"),
        (lambda r: r | {"format": 2}, "must have format 3; got 2"),
        (lambda r: [r], "must have format 3; got None"),
        (lambda r: without(r, "steps"), r"incomplete \(KeyError\('steps'\)\)"),
        (lambda r: r | {"steps": 7}, "incomplete"),
        (lambda r: r | {"steps": [r["steps"][0] | {"reached": {"purity": 1.0}}]}, "incomplete"),
        (lambda r: r | {"position": 60}, "has 60 steps, but is at 60"),
        (lambda r: r | {"position": 1.5}, "is at 1.5"),
        (lambda r: r | {"steps": r["steps"][::-1]}, "thresholds out of order"),
        (lambda r: r | {"steps": [r["steps"][0] | {"threshold": float("nan")}]}, "not finite numbers"),
        (lambda r: r | {"steps": [r["steps"][0] | {"threshold": "0.5"}]}, "not finite numbers"),
        (
            lambda r: r | {"steps": [r["steps"][0] | {"reached": r["steps"][0]["reached"] | {"pairwise_recall": 1.5}}]},
            "scores above 1",
        ),
    ],
)
def test_a_damaged_record_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Calibration.from_dict(change(json.loads(json.dumps(stored().as_dict()))))


@pytest.mark.parametrize(
    ("vectors", "labels", "message"),
    [
        (np.zeros((6, 2)), [0, 0, 1, 1, 2, 2], "at least 4 classes, 2 of them with several images; got 3 and 3"),
        (np.zeros((4, 2)), [0, 1, 2, 3], "got 4 and 0"),
        (np.zeros((4, 2)), [0, 1, 2], "one label each; got"),
        (np.full((8, 2), np.nan), np.arange(8) % 4, "must be finite"),
    ],
)
def test_wrong_input_is_named(vectors, labels, message):
    with pytest.raises(ValueError, match=message):
        calibrate(vectors, labels)


def test_equal_vectors_are_calibrated_without_complaint():
    found = calibrate(np.ones((40, 3)), np.arange(40) % 8, n_repeats=1)
    assert np.isfinite(found.threshold)


def test_a_calibration_shows_itself_in_one_line():
    calibration = calibrate(*blobs(80, 8), n_repeats=1)
    assert repr(calibration) == f"<Calibration: threshold {calibration.threshold:.4g}, step {calibration.position + 1} of 60>"
