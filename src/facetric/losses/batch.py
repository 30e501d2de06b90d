"""What every loss does with a batch at the door: check it, normalize it, and say which pairs belong together."""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import torch
from torch import Tensor, nn


def checked_batch(embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Embeddings (m, d) in float32 or float64 and labels (m,) on the same device, or a ValueError that says what is wrong."""
    if not isinstance(embeddings, Tensor) or not embeddings.is_floating_point():
        kind = embeddings.dtype if isinstance(embeddings, Tensor) else type(embeddings).__name__
        raise ValueError(
            f"embeddings must be a floating-point tensor of shape (batch, dimension); got {kind}: convert with .float()"
        )
    if embeddings.ndim != 2:
        raise ValueError(
            f"embeddings must have shape (batch, dimension); got {tuple(embeddings.shape)}: pool to one vector per image"
        )
    labels = torch.as_tensor(labels)
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(f"labels must be integers, one class id per image; got {labels.dtype}: convert with .long()")
    if labels.ndim != 1 or len(labels) != len(embeddings):
        raise ValueError(
            f"labels must have one entry per embedding; got shape {tuple(labels.shape)} for {len(embeddings)} embeddings: "
            "pass the labels of the same batch"
        )
    if len(embeddings) < 2:
        raise ValueError(f"a batch needs at least 2 images to compare; got {len(embeddings)}: enlarge the batch")
    if not math.isfinite(float(embeddings.detach().sum())):  # cheap, and right unless finite numbers overflow: then look closer
        _refuse_non_finite(embeddings)
    if embeddings.dtype in (torch.float16, torch.bfloat16):
        embeddings = embeddings.float()
    return embeddings, labels.to(embeddings.device)


def unit_vectors(embeddings: Tensor) -> Tensor:
    """Rows divided by their l2 norm; a zero row stays zero, with zero gradient."""
    norm = torch.linalg.vector_norm(embeddings, dim=1, keepdim=True)
    return embeddings * torch.where(norm > 0, 1.0 / norm.clamp_min(torch.finfo(norm.dtype).tiny), 0.0)


def pairwise_distances(points: Tensor) -> Tensor:
    """(m, m) Euclidean distances from differences, not from dot products: exact for near and equal points.

    The gradient at distance zero is zero.
    """
    return torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")


class Pairs(NamedTuple):
    """Which pairs of a batch belong together."""

    positive: Tensor  # (m, m) bool: different images of one class
    negative: Tensor  # (m, m) bool: images of different classes
    n_positive: int
    n_negative: int


def batch_pairs(labels: Tensor) -> Pairs:
    """The ordered pairs of a batch, by class."""
    same = labels[:, None] == labels[None, :]
    m = len(labels)
    n_same = int(same.sum())
    return Pairs(same.clone().fill_diagonal_(False), ~same, n_same - m, m * m - n_same)


def zero_loss(embeddings: Tensor) -> Tensor:
    """0 that is connected to the graph, so that backward() gives a zero gradient."""
    return (embeddings * 0.0).sum()


def is_degenerate(loss: nn.Module, pairs: Pairs) -> bool:
    """True, with one warning per loss object, for a batch that has no positive or no negative pair."""
    if pairs.n_positive > 0 and pairs.n_negative > 0:
        return False
    if not getattr(loss, "_warned_of_degenerate_batch", False):
        loss._warned_of_degenerate_batch = True  # type: ignore[assignment]
        missing = "pair of the same class" if pairs.n_positive == 0 else "pair of different classes"
        warnings.warn(
            f"{type(loss).__name__}: the batch has no {missing}, so its loss is 0 with zero gradient: "
            "draw several images from each of several classes (said once)",
            stacklevel=3,
        )
    return True


def _refuse_non_finite(embeddings: Tensor) -> None:
    finite = torch.isfinite(embeddings).all(dim=1)
    rows = torch.nonzero(~finite).flatten().tolist()
    if rows:
        raise ValueError(
            f"embeddings must be finite; {len(rows)} of {len(embeddings)} rows hold NaN or infinity, the first is row {rows[0]}: "
            "lower the learning rate, clip gradients, or check the images"
        )
