"""A vote's precision: what leaving photos out says, and what photos that the index has never seen confirm."""

from pathlib import Path

import numpy as np
import pytest

from facetric.photos.query import Votes, _cases
from facetric.photos.sqlite_store import SqliteStore
from facetric.photos.store import Model, NewPhoto

DIM, TOP = 12, 5


def made(seed, n_classes, per_class, spread=1.2):
    """Vectors of length one around the centers of classes that overlap, and their classes."""
    centers = np.random.default_rng(0).normal(size=(n_classes, DIM))
    classes = np.repeat(np.arange(n_classes), per_class)
    vectors = centers[classes] + spread * np.random.default_rng(seed).normal(size=(len(classes), DIM))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), classes


@pytest.fixture
def store(tmp_path):
    with SqliteStore(str(tmp_path), Model("f" * 64, DIM, None)) as opened:
        yield opened


def fill(store, vectors, classes):
    store.set_labels({f"/{row:04}.jpg": f"class {label}" for row, label in enumerate(classes)})
    store.add(NewPhoto(Path(f"/{row:04}.jpg"), "", row.to_bytes(16, "big"), x) for row, x in enumerate(vectors))


def votes(store, vectors, **options):
    return Votes(store).of(store.search(vectors, top=TOP), top=TOP, limit=-1.0, **options)


def test_cases_are_those_of_leaving_out_a_photo_and_leaving_out_its_label(store):
    vectors, classes = made(1, 8, 6)
    fill(store, vectors, classes)
    expected = []
    for i, own in enumerate(classes):
        similarities = vectors.astype(np.float64) @ vectors[i].astype(np.float64)
        for voters in (np.arange(len(classes)) != i, classes != own):
            order = [j for j in np.argsort(-similarities, kind="stable") if voters[j]][:TOP]
            labels = classes[order].tolist()
            winner = max(labels, key=labels.count)
            is_unknown = not voters[classes == own].any()
            expected.append((similarities[order[0]], labels.count(winner) / TOP, winner == own, is_unknown))
    np.testing.assert_allclose(_cases(store, top=TOP, limit=-1.0), np.array(expected, dtype=float), atol=1e-6)


def test_the_expected_precision_is_reached_with_and_without_unknown_photos(store):
    vectors, classes = made(1, 40, 30)
    fill(store, vectors[classes < 20], classes[classes < 20])
    queries, truth = made(2, 40, 20)
    known = truth < 20
    for unknown_fraction, rows in ((0.0, known), (0.5, np.ones(len(truth), dtype=bool))):
        found = votes(store, queries[rows], unknown_fraction=unknown_fraction)
        expected = np.array([vote.expected_precision for vote in found])
        right = np.array([vote.label == f"class {label}" for vote, label in zip(found, truth[rows], strict=True)])
        for band in (expected < 0.5, expected >= 0.5, expected >= 0):
            assert band.sum() > 30
            assert expected[band].mean() == pytest.approx(right[band].mean(), abs=0.1)


def test_most_photos_of_other_labels_are_unknown_and_most_known_ones_are_not(store):
    vectors, classes = made(1, 40, 10, spread=0.5)
    fill(store, vectors[classes < 20], classes[classes < 20])
    queries, truth = made(2, 40, 20, spread=0.5)
    unknown = np.array([vote.is_unknown for vote in votes(store, queries)])
    assert unknown[truth >= 20].mean() > 0.75
    assert unknown[truth < 20].mean() < 0.25


def test_with_one_label_no_precision_is_expected(store):
    vectors, classes = made(1, 1, 60)
    fill(store, vectors, classes)
    assert {vote.expected_precision for vote in votes(store, vectors)} == {None}
