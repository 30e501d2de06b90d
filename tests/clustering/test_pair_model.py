"""What labeled classes teach: the piles that are drawn, what is measured in them, the model and its record."""

import functools
import json

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from clustering.clouds import blobs
from facetric.clustering import PairLinkage, PairModel, Pile, calibrate
from facetric.clustering.cut import best_cut
from facetric.clustering.group_features import GROUP_FEATURES, group_features
from facetric.clustering.lessons import Lesson, drawn_rows
from facetric.clustering.links import Links

PACKAGED = PairModel.packaged()


def levels(n_coarse, seed, *, n_fine=4, n_each=6):
    """Points of fine classes that lie around coarse ones, and both classes."""
    rng = np.random.default_rng(seed)
    coarse = np.repeat(np.arange(n_coarse), n_fine * n_each)
    fine = np.repeat(np.arange(n_coarse * n_fine), n_each)
    points = 1.5 * rng.normal(size=(n_coarse, 24))[coarse] + rng.normal(size=(n_coarse * n_fine, 24))[fine]
    return points + 0.35 * rng.normal(size=points.shape), coarse, fine


@pytest.mark.parametrize("n_classes", [2, 7, 300])
def test_drawn_rows_have_many_shapes(n_classes):
    classes = np.repeat(np.arange(n_classes), 25)
    draws = drawn_rows(classes, 60, np.random.default_rng(0))
    assert len(draws) == 60
    numbers = [len(np.unique(classes[rows])) for rows in draws]
    for rows in draws:
        assert len(set(rows.tolist())) == len(rows)
        assert 8 <= len(rows) <= 340
        assert np.bincount(classes[rows]).max() > 1
    assert min(numbers) <= 4
    assert min(n_classes, 60) <= max(numbers) <= min(n_classes, 100)
    again = drawn_rows(classes, 60, np.random.default_rng(0))
    assert [rows.tolist() for rows in draws] == [rows.tolist() for rows in again]


def test_a_lesson_measures_merges_and_groups():
    points, labels = blobs(70, 6, 0, noise=0.9)
    lesson = Lesson.of(points.astype(np.float32), labels)
    scores = PACKAGED.log_odds(points)
    tree, probability = PACKAGED.tree(scores, Links.parse(None, None, 70))
    nodes = [{i} for i in range(70)]
    found = lesson.merges(tree)
    for (a, b), target, weight in zip(tree.parts.tolist(), found.targets, found.importance, strict=True):
        across = [labels[i] == labels[j] for i in nodes[a] for j in nodes[b]]
        assert target == pytest.approx(np.mean(across))
        assert weight == pytest.approx(len(across) / tree.n_across.sum())
        nodes.append(nodes[a] | nodes[b])
    cut = best_cut(tree, probability)
    groups, features = group_features(scores, tree, probability, cut)
    likely = dict(zip(zip(*scores.pairs, strict=True), 1 / (1 + np.exp(-scores.log_odds)), strict=True))
    absent = 1 / (1 + np.exp(-scores.background))
    for group, features_, precision in zip(groups, features, lesson.precision(cut.roots[tree.leaves], groups), strict=True):
        own = sorted(nodes[group])
        pairs = [labels[i] == labels[j] for k, i in enumerate(own) for j in own[:k]]
        assert precision == pytest.approx(np.mean(pairs))
        values = dict(zip(GROUP_FEATURES, features_, strict=True))
        inside = [merge for merge in range(len(tree.parts)) if nodes[70 + merge] <= nodes[group]]
        expected = (probability * tree.n_across)[inside].sum() / len(pairs)
        assert 1 / (1 + np.exp(-values["expected"])) == pytest.approx(np.clip(expected, 1e-3, 1 - 1e-3))
        inner = [likely.get((j, i), absent) for k, i in enumerate(own) for j in own[:k]]
        assert 1 / (1 + np.exp(-values["inside"])) == pytest.approx(np.clip(np.mean(inner), 1e-3, 1 - 1e-3))
        out = sum(p for pair, p in likely.items() if len(nodes[group] & set(pair)) == 1)
        listed = sum(p for pair, p in likely.items() if nodes[group] >= set(pair))
        assert values["outside"] == pytest.approx(np.log((out / len(own) + 0.05) / (2 * listed / len(own) + 0.05)))
        parent = [p for p, parts in zip(probability, tree.parts.tolist(), strict=True) if group in parts]
        assert 1 / (1 + np.exp(-values["parent"])) == pytest.approx(np.clip(sum(parent), 1e-3, 1 - 1e-3))
        assert values["is_pair"] == (len(own) == 2)
        assert (values["size"], values["n_groups"]) == pytest.approx((np.log(len(own)), np.log(len(groups))))
    assert len(groups) > 1


def test_the_pairs_of_a_lesson_stand_for_all_pairs():
    points, labels = blobs(300, 8, 1, noise=0.8)
    examples = Lesson.of(points.astype(np.float32), labels).examples
    fraction = np.bincount(labels) @ (np.bincount(labels) - 1) / (300 * 299)
    assert len(examples.targets) <= 1500
    assert examples.importance @ examples.targets / examples.importance.sum() == pytest.approx(fraction, rel=0.2)


@functools.cache
def taught():
    """By coarse classes, and by fine ones."""
    points, coarse, fine = levels(40, 0)
    return calibrate(points, coarse), calibrate(points, fine)


def test_classes_teach_which_of_two_levels_is_meant():
    points, coarse, fine = levels(12, 1)
    pile = Pile(points)
    by_coarse, by_fine = (PairLinkage(model).fit_predict(pile) for model in taught())
    assert adjusted_rand_score(coarse, by_coarse) > max(0.8, adjusted_rand_score(coarse, by_fine))
    assert adjusted_rand_score(fine, by_fine) > adjusted_rand_score(fine, by_coarse) + 0.2


def test_few_classes_change_little():
    points, coarse, _ = levels(5, 0)
    few, many = calibrate(points, coarse), taught()[0]
    changes = [np.linalg.norm(model.merges.weights - PACKAGED.merges.weights) for model in (few, many)]
    assert 0 < changes[0] < changes[1]
    assert (few.groups, few.error, few.n_classes) == (PACKAGED.groups, PACKAGED.error, 5)  # too few to judge what is expected
    assert many.error != PACKAGED.error


def test_a_fit_can_be_repeated_and_says_what_it_is():
    points, _, fine = levels(2, 2)
    one, two = calibrate(points, fine, seed=3), PairModel.packaged().fit(points, [f"class {c}" for c in fine], seed=3)
    assert one.as_dict() == two.as_dict() != PACKAGED.as_dict()
    assert repr(one) == "<PairModel: fitted to 8 classes>"
    assert repr(PACKAGED) == "<PairModel: as it comes with the install>"


def test_log_odds_tell_pairs_of_one_class():
    points, labels = blobs(120, 8, 0, noise=0.3)
    pairs, log_odds, background = PACKAGED.log_odds(points)
    same = labels[pairs.first] == labels[pairs.second]
    assert np.median(log_odds[same]) > 0 > np.median(log_odds[~same]) > background


def test_a_model_survives_a_file():
    record = json.loads(json.dumps(taught()[0].as_dict()))
    assert PairModel.from_dict(record).as_dict() == taught()[0].as_dict()
    points = levels(4, 5)[0]
    assert (PairModel.from_dict(record).log_odds(points).log_odds == taught()[0].log_odds(points).log_odds).all()


def changed(record, *path, to):
    inner = record
    for key in path[:-1]:
        inner = inner[key]
    if to is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: changed(r, "format", to=None), "must have format 1; got None: calibrate again"),
        (lambda r: changed(r, "format", to=3), "must have format 1; got 3"),
        (lambda r: [r], "must have format 1; got None"),
        (lambda r: changed(r, "merges", to=None), r"damaged \('merges'\): calibrate again"),
        (lambda r: changed(r, "pairs", to=7), "damaged"),
        (lambda r: changed(r, "pairs", "features", "cosine", to=None), "its features are cosine_less_means, .*; this version"),
        (lambda r: changed(r, "pairs", "features", "cosine", "weight", to="much"), "damaged"),
        (lambda r: changed(r, "groups", "constant", to=float("nan")), "its numbers are not finite, or a spread is not above 0"),
        (lambda r: changed(r, "groups", "features", "size", "spread", to=0.0), "a spread is not above 0"),
        (lambda r: changed(r, "error", to=-1.0), "its error is -1.0"),
        (lambda r: changed(r, "n_classes", to=1.5), "its number of classes 1.5"),
    ],
)
def test_a_damaged_record_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        PairModel.from_dict(change(json.loads(json.dumps(PACKAGED.as_dict()))))


@pytest.mark.parametrize(
    ("vectors", "labels", "message"),
    [
        (np.eye(6), [0, 0, 0, 1, 2, 3], "two classes of two images or more teach what belongs together; got 1: add"),
        (np.eye(4), [0, 1, 2, 3], "got 0: add"),
        (np.eye(4), [0, 1, 2], r"one label each; got \(4, 4\) and 3 labels: pass both"),
        (np.full((8, 2), np.nan), np.arange(8) % 4, "must be .*finite"),
        (np.zeros(8), np.arange(8) % 4, r"got \(8,\)"),
        (np.eye(4), [0, 0, 1, 1], "piles of eight images or more teach what belongs together; got 4: add"),
    ],
)
def test_wrong_input_is_named(vectors, labels, message):
    with pytest.raises(ValueError, match=message):
        calibrate(vectors, labels)


@pytest.mark.parametrize("labels", [np.arange(8) % 2, np.arange(12) % 6])
def test_few_or_equal_vectors_are_learned_from_without_complaint(labels):
    found = calibrate(np.ones((len(labels), 3)), labels)
    assert np.isfinite(found.pairs.weights).all()
    assert np.isfinite(found.error)
