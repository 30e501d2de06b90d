"""The head's initial values against NumPy, from the formula in the docstring."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from facetric.embedder import build_network
from facetric.embedder.heads import half_whitened_pca


def correlated(n: int, n_features: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, n_features)) * np.linspace(3, 0.2, n_features) @ rng.normal(size=(n_features, n_features)) + 5


def test_the_pca_head_is_the_formula_by_singular_values() -> None:
    x = correlated(300, 20)
    weight, bias = half_whitened_pca(x, 6)
    centered = x - x.mean(axis=0)
    _, singular, right = np.linalg.svd(centered, full_matrices=False)
    eigenvalues = singular[:6] ** 2 / len(x)
    expected = centered @ right[:6].T / eigenvalues**0.25 / np.sqrt(np.sqrt(eigenvalues).sum())
    given = x @ weight.T + bias
    np.testing.assert_allclose(np.abs(given), np.abs(expected), atol=1e-9)  # a direction has no sign


def test_pca_embeddings_are_centered_uncorrelated_half_whitened_and_of_unit_length_on_average() -> None:
    x = correlated(500, 12)
    weight, bias = half_whitened_pca(x, 5)
    embedded = x @ weight.T + bias
    np.testing.assert_allclose(embedded.mean(axis=0), 0, atol=1e-12)
    assert np.mean((embedded**2).sum(axis=1)) == pytest.approx(1)
    covariance = embedded.T @ embedded / len(x)
    np.testing.assert_allclose(covariance, np.diag(np.diag(covariance)), atol=1e-12)
    plain = np.sort(np.linalg.eigvalsh(np.cov(x.T, bias=True)))[::-1][:5]
    np.testing.assert_allclose(np.diag(covariance) / covariance[0, 0], np.sqrt(plain / plain[0]))


def test_the_head_maps_features_to_that_embedding() -> None:
    embedder = build_network("glyphnet", dim=8, normalize=False)
    x = correlated(100, embedder.n_features)
    embedder = embedder.with_head(x.astype(np.float32), kind="pca")
    weight, bias = half_whitened_pca(x.astype(np.float32), 8)
    with torch.no_grad():
        given = embedder.head(torch.from_numpy(x).float()).numpy()
    np.testing.assert_allclose(given, x @ weight.T + bias, atol=2e-4)
    as_tensor = embedder.with_head(torch.from_numpy(x.astype(np.float32)), kind="pca")
    assert torch.equal(embedder.head.weight, as_tensor.head.weight)


def test_directions_without_variance_stay_finite() -> None:
    x = np.zeros((50, 10))
    x[:, :3] = correlated(50, 3)
    weight, bias = half_whitened_pca(x, 6)
    assert np.isfinite(weight).all()
    assert np.isfinite(bias).all()
    assert np.abs(x @ weight.T + bias).max() < 10


def test_an_orthogonal_head_has_orthonormal_rows_by_seed() -> None:
    embedder = build_network("glyphnet", dim=8)
    before = embedder.head.weight.detach().clone()
    found, other, again = (embedder.with_head(kind="orthogonal", seed=seed).head for seed in (3, 4, 3))
    assert torch.allclose(found.weight @ found.weight.T, torch.eye(8), atol=1e-5)
    assert not found.bias.any()
    assert not torch.equal(other.weight, found.weight)
    assert torch.equal(again.weight, found.weight)
    assert torch.equal(embedder.head.weight, before)
    assert torch.equal(embedder.with_head(kind="orthogonal", seed=3, scale=2.0).head.weight, 2 * found.weight)


def test_the_default_head_is_torchs() -> None:
    embedder = build_network("glyphnet", dim=8)
    before = torch.get_rng_state()
    found = embedder.with_head(kind="default", seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(3)
    assert torch.equal(found.head.weight, torch.nn.Linear(embedder.n_features, 8).weight)


@pytest.mark.parametrize(
    ("features", "kind", "message"),
    [
        (np.ones((100, 4)), "pca", "the head takes 1024 features; got 4"),
        (np.ones((8, 1024)), "pca", r"needs more than 8 images and at least 8 features; got 8 and 1024: lower dim"),
        (np.ones((100, 1024)), "pca", "all images have the same features"),
        (np.full((100, 1024), np.nan), "pca", "features must be finite"),
        (np.ones(100), "pca", r"\(n, n_features\); got \(100,\)"),
        (None, "pca", "a pca head is made from training features: pass those"),
        (None, "lda", "one of pca, whitened, orthogonal, default; got 'lda'"),
    ],
)
def test_bad_features_are_refused(features, kind: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_network("glyphnet", dim=8).with_head(features, kind=kind)
