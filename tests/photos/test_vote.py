"""Labels for photos: what the labeled photos of a collection teach, and what photos that it has never seen confirm."""

from pathlib import Path

import numpy as np
import pytest

from facetric.photos.labels import Centers, Votes, _cases
from facetric.photos.sqlite_store import SqliteStore
from facetric.photos.store import Model, NewPhoto

DIM = 12


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


def plain_evidence(vectors, classes, query):
    """As the page of `labels` defines it, one photo and one class at a time."""
    names = np.unique(classes)
    means = np.array([vectors[classes == c].mean(axis=0) for c in names], dtype=np.float64)
    freedom = len(vectors) - len(names)

    def scatter(rows):
        parts = [vectors[rows & (classes == c)] for c in names]
        return sum((part - part.mean(axis=0)).T @ (part - part.mean(axis=0)) for part in parts) / freedom

    everything = scatter(np.ones(len(vectors), dtype=bool))
    shrunk = np.trace(everything) / DIM * np.eye(DIM)
    middle = means.mean(axis=0)

    def cosine(a, b, inverse):
        return (a @ inverse @ b) / np.sqrt((a @ inverse @ a) * (b @ inverse @ b))

    inverse = np.linalg.inv(everything + shrunk)
    found = np.array([cosine(query - middle, mean - middle, inverse) for mean in means])
    best = int(found.argmax())
    own = {c: [] for c in names}
    for i, (x, c) in enumerate(zip(vectors, classes, strict=True)):
        without = np.arange(len(vectors)) != i
        others = vectors[without & (classes == c)].mean(axis=0)
        own[c].append(cosine(x - middle, others - middle, np.linalg.inv(scatter(without) + shrunk)))
    every = np.concatenate(list(own.values()))
    mean = (sum(own[best]) + 20 * every.mean()) / (len(own[best]) + 20)
    spread = np.sqrt((sum((v - mean) ** 2 for v in own[best]) + 20 * every.var()) / (len(own[best]) + 20))
    ordered = np.sort(found)[::-1]
    return best, (ordered[0], ordered[1], ordered[2:6].mean(), (found[best] - mean) / spread)


def test_the_evidence_is_that_of_the_equations():
    vectors, classes = made(1, 8, 6)
    queries, _ = made(2, 8, 2)
    best, evidence = Centers(vectors, classes).nearest(queries)
    for row, query in enumerate(queries.astype(np.float64)):
        code, expected = plain_evidence(vectors.astype(np.float64), classes, query)
        assert best[row] == code
        np.testing.assert_allclose(evidence[row], expected, rtol=1e-4)


def test_every_label_is_left_out_once_and_no_photo_is_asked_about_that_teaches():
    vectors, classes = made(1, 8, 6)
    cases = _cases(vectors, classes)
    assert (cases[:, 5] == 1).sum() == len(classes)  # each photo once while its label is unknown
    assert (cases[:, 4] <= 1 - cases[:, 5]).all()  # and then the answer is wrong
    assert (cases[:, 5] == 0).sum() == 3 * 8 * 2  # two photos of each label, in the three parts in which it is known


def test_the_expected_precision_is_reached_with_and_without_unknown_photos(store):
    vectors, classes = made(1, 40, 30)
    fill(store, vectors[classes < 20], classes[classes < 20])
    queries, truth = made(2, 40, 20)
    known = truth < 20
    for unknown_fraction, rows in ((0.0, known), (0.5, np.ones(len(truth), dtype=bool))):
        found = Votes(store).of(queries[rows], unknown_fraction=unknown_fraction)
        expected = np.array([vote.expected_precision for vote in found])
        right = np.array([vote.label == f"class {label}" for vote, label in zip(found, truth[rows], strict=True)])
        for band in (expected < 0.5, expected >= 0.5, expected >= 0):
            assert band.sum() > 30
            assert expected[band].mean() == pytest.approx(right[band].mean(), abs=0.1)


def test_most_photos_of_other_labels_are_unknown_and_most_known_ones_are_not(store):
    vectors, classes = made(1, 40, 10, spread=0.5)
    fill(store, vectors[classes < 20], classes[classes < 20])
    queries, truth = made(2, 40, 20, spread=0.5)
    unknown = np.array([vote.is_unknown for vote in Votes(store).of(queries)])
    assert unknown[truth >= 20].mean() > 0.75
    assert unknown[truth < 20].mean() < 0.25


@pytest.mark.parametrize(("n_classes", "per_class"), [(1, 60), (30, 1), (2, 2)])
def test_where_too_little_is_labeled_the_answer_says_no_precision(store, n_classes, per_class):
    vectors, classes = made(1, n_classes, per_class)
    fill(store, vectors, classes)
    found = Votes(store).of(vectors)
    assert {vote.expected_precision for vote in found} == {None}
    assert [vote.label for vote in found] == [f"class {label}" for label in classes]


def test_without_labels_there_is_no_answer(store):
    vectors, _ = made(1, 3, 4)
    store.add(NewPhoto(Path(f"/{row:04}.jpg"), "", row.to_bytes(16, "big"), x) for row, x in enumerate(vectors))
    assert Votes(store).of(vectors) == [None] * len(vectors)
