"""Values of the linear head: from training features, in closed form, or at random.

The whitened head (features whitened by the spread within classes, then PCA) is the baseline that training has to beat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from facetric.metrics import retrieval, unit_rows

HEAD_KINDS = ("pca", "whitened", "orthogonal", "default")
SHRINKAGES = (0.3, 1.0, 3.0, 10.0)
USUAL_SHRINKAGE = 3.0  # where there are too few classes to choose
FEW_IMAGES_SHRINKAGE = 30.0  # fewer images than features; chosen on small folders of CUB, where cross-validation is mostly noise
_N_FOLDS, _MIN_CLASSES = 4, 4
_WITHOUT = "--set model.head_init=orthogonal --set model.head_refit=false"


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
        raise ValueError(f"features must be finite and of shape (n, n_features); got {x.shape}: pass those of the network")
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


def fill_head(head: nn.Linear, features: ArrayLike | Tensor | None, labels: ArrayLike | None, *, kind: str, seed: int) -> None:
    """Fill the head: "pca" from features, "whitened" from features and labels, "orthogonal" (orthonormal rows, bias 0) or torch's
    "default" from the seed."""
    if kind not in HEAD_KINDS:
        raise ValueError(f"kind must be one of {', '.join(HEAD_KINDS)}; got {kind!r} (--set model.head_init=…)")
    if kind in ("orthogonal", "default"):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            drawn = nn.Linear(head.in_features, head.out_features)
            if kind == "orthogonal":
                nn.init.orthogonal_(drawn.weight)
                nn.init.zeros_(drawn.bias)
        head.load_state_dict(drawn.state_dict())
        return
    if features is None or (kind == "whitened" and labels is None):
        needed = "training features and their labels" if kind == "whitened" else "training features"
        raise ValueError(f"a {kind} head is made from {needed}: pass those of the network's images")
    values = features.detach().cpu().numpy() if isinstance(features, Tensor) else np.asarray(features)
    if values.ndim == 2 and values.shape[1] != head.in_features:
        raise ValueError(f"the head takes {head.in_features} features; got {values.shape[1]}: pass those of its own backbone")
    if labels is None or kind == "pca":
        weight, bias = half_whitened_pca(values, head.out_features)
    else:
        fitted = closed_form_head(values, labels, head.out_features)
        weight, bias = fitted.weight, fitted.bias
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(weight))
        head.bias.copy_(torch.from_numpy(bias))


@dataclass(frozen=True, eq=False)
class ClosedForm:
    """An affine map of l2-normalized features: x → W·x/‖x‖ + b."""

    weight: NDArray[np.float64]  # (dim, n_features)
    bias: NDArray[np.float64]  # (dim,)
    shrinkage: float

    def __call__(self, features: ArrayLike) -> NDArray[np.float32]:
        """The embeddings (n, dim) of features (n, n_features), of length one."""
        embedded = unit_rows(np.asarray(features, dtype=np.float64)) @ self.weight.T + self.bias
        return unit_rows(embedded).astype(np.float32)


def closed_form_head(features: ArrayLike, labels: ArrayLike, dim: int, *, shrinkage: float | None = None) -> ClosedForm:
    """The head of `dim` dimensions for features (n, n_features) of the training classes `labels` (n,).

        u = x/‖x‖,   S = mean((u − μ_c)(u − μ_c)ᵀ) within classes,   A = (S + s·mean(diag S)·I)^(−1/2)
        W = t·P·A,   b = −W·mean(u),   P: the first `dim` principal directions of A·u

    The scale t makes the mean squared length of the training embeddings 1. Without `shrinkage`, s is the one of 0.3, 1, 3 and 10
    with the highest MAP@R in cross-validation over the classes (four folds; 3 for fewer than four classes with several images);
    ties go to the larger. Of v and −v that with the positive largest entry is taken. Nothing is random.

    n images span n − 1 directions, so PCA needs more than `dim` of them. With `dim` = n_features no direction is left out, and
    any number of images will do: with n_features or fewer P = I, and s = 30 unless given.
    """
    x, classes = np.asarray(features, dtype=np.float64), np.unique(labels, return_inverse=True)[1]
    if x.ndim != 2 or len(x) != len(classes) or not np.isfinite(x).all():
        raise ValueError(
            f"features must be finite and of shape (n, n_features) with a label each; got {x.shape} and {len(classes)} labels: "
            "pass those of the network and the labels of its images"
        )
    check_fit(x.shape[1], classes, dim)
    units = unit_rows(x)
    if shrinkage is None:
        shrinkage = FEW_IMAGES_SHRINKAGE if len(units) <= dim else _chosen_shrinkage(units, classes, dim)
    return _Spread.of(units, classes).head(dim, shrinkage)


def closed_form_vectors(known: ArrayLike, labels: ArrayLike, features: ArrayLike, dim: int) -> tuple[NDArray[np.float32], float]:
    """Features (n, n_features) under the closed-form head of known ones and their classes, and its shrinkage.

    Of fewer dimensions than `dim` where there are too few images or features.
    """
    n_images, n_features = np.shape(known)
    head = closed_form_head(known, labels, dim if dim == n_features else min(dim, n_images - 1, n_features))
    return head(features), head.shrinkage


def check_fit(n_features: int, labels: ArrayLike, dim: int, *, without: str = _WITHOUT) -> None:
    """Refuse what no whitened head can be fitted to: it has all features, or fewer than there are images."""
    classes = np.asarray(labels)
    if dim != n_features and dim >= min(len(classes), n_features):
        raise ValueError(
            f"a whitened head of {dim} dimensions needs more than {dim} images and at least {dim} features; got {len(classes)} "
            f"and {n_features}: lower dim or keep all features (--set model.dim=… or --set model.dim={n_features}), or do "
            f"without ({without})"
        )
    if len(np.unique(classes)) == len(classes):
        raise ValueError(f"a whitened head needs classes with several images, and every class has one: do without ({without})")


@dataclass(frozen=True, eq=False)
class _Spread:
    """What all shrinkages share. The k directions are all n_features of them, or those in which fewer images differ."""

    n: int  # images
    mean: NDArray[np.float64]  # (n_features,)
    eigenvalues: NDArray[np.float64]  # (k,) of the covariance within classes
    directions: NDArray[np.float64]  # (n_features, k) its eigenvectors, in columns
    total: NDArray[np.float64]  # (k, k) covariance of all, along these directions

    @classmethod
    def of(cls, units: NDArray[np.float64], classes: NDArray[np.int64]) -> _Spread:
        sums = np.zeros((int(classes.max()) + 1, units.shape[1]))
        np.add.at(sums, classes, units)
        within = units - (sums / np.bincount(classes)[:, None])[classes]
        mean = units.mean(axis=0)
        if len(units) < units.shape[1]:
            basis = np.linalg.svd(units - mean, full_matrices=False)[2].T  # (n_features, n)
            within = within @ basis
            eigenvalues, directions = np.linalg.eigh(within.T @ within / len(units))
            directions = basis @ directions
        else:
            eigenvalues, directions = np.linalg.eigh(within.T @ within / len(units))
        turned = (units - mean) @ directions
        return cls(len(units), mean, np.maximum(eigenvalues, 0), directions, turned.T @ turned / len(units))

    def head(self, dim: int, shrinkage: float) -> ClosedForm:
        if not self.eigenvalues.any():
            raise ValueError("the images of each class have the same features, which leaves nothing to whiten: check the images")
        ridge = shrinkage * self.eigenvalues.sum() / len(self.mean)  # mean(diag S) = mean of its n_features eigenvalues
        scales = (self.eigenvalues + ridge) ** -0.5
        if dim >= self.n:  # all features, of few images: A, which is ridge^(−1/2) outside these directions
            weight = self.directions * (scales - ridge**-0.5) @ self.directions.T
            weight[np.diag_indices(dim)] += ridge**-0.5
            weight /= np.sqrt(self.total.diagonal() @ scales**2)
            return ClosedForm(weight, -weight @ self.mean, shrinkage)
        variances, axes = np.linalg.eigh(scales[:, None] * self.total * scales)  # ascending
        variances, axes = variances[::-1][:dim], axes[:, ::-1][:, :dim]
        weight = (axes * scales[:, None]).T @ self.directions.T  # P·A
        signs = np.sign(weight[np.arange(dim), np.abs(weight).argmax(axis=1)])
        weight *= signs[:, None] / np.sqrt(variances.sum())
        return ClosedForm(weight, -weight @ self.mean, shrinkage)


def _chosen_shrinkage(units: NDArray[np.float64], classes: NDArray[np.int64], dim: int) -> float:
    """By MAP@R on the classes of each fold, with a head fitted to the others."""
    several = np.flatnonzero(np.bincount(classes) > 1)
    if len(several) < _MIN_CLASSES:
        return USUAL_SHRINKAGE
    n_folds = min(_N_FOLDS, len(several) // 2)
    fold_of_class = np.full(int(classes.max()) + 1, -1)  # classes of one image are fitted to and not scored
    fold_of_class[np.random.default_rng(0).permutation(several)] = np.arange(len(several)) % n_folds
    folds = fold_of_class[classes]
    scores = np.zeros(len(SHRINKAGES))
    for fold in range(n_folds):
        held_out = folds == fold
        rest = _Spread.of(units[~held_out], np.unique(classes[~held_out], return_inverse=True)[1])
        n_kept = min(dim, int((~held_out).sum()) - 1)
        for i, shrinkage in enumerate(SHRINKAGES):
            vectors = rest.head(n_kept, shrinkage)(units[held_out])
            scores[i] += retrieval(vectors, classes[held_out], ks=(1,)).map_at_r
    return float(max(zip(scores, SHRINKAGES, strict=True))[1])
