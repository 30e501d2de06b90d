"""The whitened head against its definition, and how its shrinkage is chosen."""

import numpy as np
import pytest
import torch

from facetric.embedder import build_network, save_network
from facetric.embedder.checkpoint import load_network
from facetric.embedder.heads import SHRINKAGES, closed_form_head
from oracles.closed_form import embedded_by_definition, map_at_r_by_loops, whitened_by_definition


def features_of_classes(n_classes=12, per_class=8, n_features=20, seed=0):
    """Positive features whose classes differ in a few directions and whose images differ much more in others."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_classes), per_class)
    within = rng.normal(size=(len(labels), n_features)) * np.linspace(0.2, 4.0, n_features)
    between = rng.normal(size=(n_classes, n_features))[labels] * np.linspace(1.5, 0.5, n_features)
    return 10 + between + within, labels


@pytest.mark.parametrize("shrinkage", [0.3, 3.0])
@pytest.mark.parametrize("dim", [1, 5, 20])
def test_the_head_is_its_definition(dim, shrinkage):
    x, labels = features_of_classes()
    others, _ = features_of_classes(seed=1)
    head = closed_form_head(x, labels, dim, shrinkage=shrinkage)
    units = others / np.linalg.norm(others, axis=1, keepdims=True)
    given = units @ head.weight.T + head.bias
    expected = embedded_by_definition(x, labels, others, dim, shrinkage)
    np.testing.assert_allclose(np.abs(given), np.abs(expected), atol=1e-8)  # a direction has no sign
    np.testing.assert_allclose(head(others), given / np.linalg.norm(given, axis=1, keepdims=True), atol=1e-6)


def test_the_shrinkage_is_the_one_that_retrieves_best_on_classes_it_was_not_fitted_to():
    x, labels = features_of_classes(n_classes=8)
    folds = np.empty(8, dtype=int)
    folds[np.random.default_rng(0).permutation(8)] = np.arange(8) % 4
    scores = []
    for shrinkage in SHRINKAGES:
        found = 0.0
        for fold in range(4):
            held_out = folds[labels] == fold
            vectors = embedded_by_definition(x[~held_out], labels[~held_out], x[held_out], 5, shrinkage)
            found += map_at_r_by_loops(vectors, labels[held_out])
        scores.append(found)
    assert len({round(score, 9) for score in scores}) > 1
    assert closed_form_head(x, labels, 5).shrinkage == SHRINKAGES[int(np.argmax(scores))]


def test_whitening_beats_the_features_where_images_of_a_class_differ_most_in_what_does_not_matter():
    x, labels = features_of_classes(n_classes=40)
    trained = labels < 20
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    found = closed_form_head(x[trained], labels[trained], 8)(x[~trained])
    assert map_at_r_by_loops(found, labels[~trained]) > 1.5 * map_at_r_by_loops(units[~trained], labels[~trained])


def test_few_classes_take_the_usual_shrinkage_and_classes_of_one_image_are_no_obstacle():
    x, labels = features_of_classes(n_classes=3)
    assert closed_form_head(x, labels, 4).shrinkage == 3.0
    x, labels = features_of_classes(n_classes=10)
    labels[-8:] = np.arange(100, 108)
    assert closed_form_head(x, labels, 4).shrinkage in SHRINKAGES


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, labels: (x[:10], labels[:10], 10), "more than 10 images and at least 10 features; got 10 and 20"),
        (lambda x, labels: (x, labels, 21), "at least 21 features"),
        (lambda x, labels: (x, np.arange(len(x)), 4), "classes with several images"),
        (lambda x, labels: (x * np.nan, labels, 4), "must be finite"),
        (lambda x, labels: (x, labels[:5], 4), "and 5 labels"),
        (lambda x, labels: (np.ones_like(x), labels, 4), "nothing to whiten"),
    ],
)
def test_what_cannot_be_whitened_is_refused(change, message):
    x, labels, dim = change(*features_of_classes())
    with pytest.raises(ValueError, match=message):
        closed_form_head(x, labels, dim)


def test_an_embedder_with_this_head_gives_its_embeddings_and_survives_a_file(tmp_path):
    embedder = build_network("glyphnet", dim=8, weights="none").eval()
    pictures = torch.rand(60, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    labels = np.repeat(np.arange(12), 5)
    with torch.no_grad():
        features = embedder.features(pictures)
        embedder = embedder.with_head(features, labels)
        given = embedder(pictures)
    expected = closed_form_head(features.numpy(), labels, 8)(features.numpy())
    np.testing.assert_allclose(given.numpy(), expected, atol=2e-4)
    save_network(embedder, tmp_path / "best.safetensors")
    with torch.no_grad():
        assert torch.equal(load_network(tmp_path / "best.safetensors")(pictures), given)
    assert not embedder.with_head(kind="orthogonal").normalize_features
    with pytest.raises(ValueError, match="a whitened head is made from training features and their labels: pass those"):
        embedder.with_head(features)


def test_all_features_of_few_images_are_whitened_without_losing_a_direction():
    x, labels = features_of_classes(n_classes=4, per_class=4, n_features=30)
    others, _ = features_of_classes(n_classes=5, n_features=30, seed=1)
    head = closed_form_head(x, labels, 30, shrinkage=3.0)
    assert np.linalg.matrix_rank(head.weight) == 30  # 16 images span 15 directions
    units = others / np.linalg.norm(others, axis=1, keepdims=True)
    given = units @ head.weight.T + head.bias
    expected = whitened_by_definition(x, labels, others, 3.0)
    np.testing.assert_allclose(given @ given.T, expected @ expected.T, rtol=1e-8, atol=1e-10)


def test_fewer_dimensions_than_features_need_more_images_than_dimensions():
    x, labels = features_of_classes(n_classes=4, per_class=4, n_features=30)
    with pytest.raises(ValueError, match=r"needs more than 29 images .* keep all features \(.* --set model\.dim=30\)"):
        closed_form_head(x, labels, 29)
