"""Initial values of the linear head: from the training features, or at random."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from facetric.embedder.closed_form import closed_form_head

HEAD_KINDS = ("pca", "whitened", "orthogonal", "default")
FITTED_KINDS = ("pca", "whitened")  # from training features


def half_whitened_pca(features: ArrayLike, dim: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weight W (dim, n_features) and bias b (dim,) of the half-whitened PCA of features (n, n_features).

        μ = mean(x),   C = mean((x − μ)(x − μ)ᵀ) = V diag(λ) Vᵀ,   λ₁ ≥ λ₂ ≥ …
        W = s · diag(λ₁^(−1/4), …, λ_d^(−1/4)) · [v₁ … v_d]ᵀ,   b = −W μ,   s = (√λ₁ + … + √λ_d)^(−1/2)

    Along direction i the embeddings have variance s²·√λᵢ: half-way between plain PCA (λᵢ) and whitening (equal). The scale s
    makes the mean squared length of the training embeddings 1, where margins of the losses that do not normalize are made
    for; it does not matter to those that do. Eigenvalues count as at least 10⁻⁸·λ₁. Of v and −v that with the positive largest
    entry is taken.
    """
    x = np.asarray(features, dtype=np.float64)
    if x.ndim != 2 or not np.isfinite(x).all():
        raise ValueError(f"features must be finite and of shape (n, n_features); got {x.shape}: pass extract_features(...)")
    n, n_features = x.shape
    if n <= dim or n_features < dim:
        raise ValueError(
            f"a PCA head of {dim} dimensions needs more than {dim} images and at least {dim} features; got {n} and {n_features}: "
            "lower dim (--set model.dim=…), or start from random values (--set model.head_init=orthogonal)"
        )
    mean = x.mean(axis=0)
    centered = x - mean
    eigenvalues, vectors = np.linalg.eigh(centered.T @ centered / n)  # ascending
    eigenvalues, vectors = eigenvalues[::-1][:dim], vectors[:, ::-1][:, :dim]
    if eigenvalues[0] <= 0:
        raise ValueError("all images have the same features, which leaves PCA no direction: check the images and the weights")
    eigenvalues = np.maximum(eigenvalues, 1e-8 * eigenvalues[0])
    largest = np.abs(vectors).argmax(axis=0)
    vectors = vectors * np.sign(vectors[largest, np.arange(dim)])
    weight = (vectors * eigenvalues**-0.25).T / math.sqrt(np.sqrt(eigenvalues).sum())
    return weight, -weight @ mean


def initialize(
    head: nn.Linear, features: ArrayLike | Tensor | None, kind: str, seed: int, labels: ArrayLike | None = None
) -> None:
    """Fill the head: "pca" from features, "whitened" from features and labels, "orthogonal" (orthonormal rows, bias 0) or torch's
    "default" from the seed."""
    if kind not in HEAD_KINDS:
        raise ValueError(f"kind must be one of {', '.join(HEAD_KINDS)}; got {kind!r} (--set model.head_init=…)")
    if kind in FITTED_KINDS:
        weight, bias = _fitted(head, features, kind, labels)
        with torch.no_grad():
            head.weight.copy_(torch.from_numpy(weight))
            head.bias.copy_(torch.from_numpy(bias))
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        drawn = nn.Linear(head.in_features, head.out_features)
        if kind == "orthogonal":
            nn.init.orthogonal_(drawn.weight)
            nn.init.zeros_(drawn.bias)
    head.load_state_dict(drawn.state_dict())


def _fitted(
    head: nn.Linear, features: ArrayLike | Tensor | None, kind: str, labels: ArrayLike | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if features is None:
        raise ValueError(f"a {kind} head is made from training features; got none: pass extract_features(...)")
    values = features.detach().cpu().numpy() if isinstance(features, Tensor) else np.asarray(features)
    if values.ndim == 2 and values.shape[1] != head.in_features:
        raise ValueError(
            f"the head takes {head.in_features} features; got {values.shape[1]}: pass those of this embedder's backbone"
        )
    if kind == "pca":
        return half_whitened_pca(values, head.out_features)
    if labels is None:
        raise ValueError("a whitened head is made from training features and their labels; got no labels: pass labels")
    found = closed_form_head(values, labels, head.out_features)
    return found.weight, found.bias
