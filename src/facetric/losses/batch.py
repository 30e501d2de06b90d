"""What losses share: arguments and batches are checked, embeddings normalized, pairs found: `BatchLoss`, `PairLoss`."""

from __future__ import annotations

import inspect
import math
import warnings
from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from facetric.losses.operation import LOSS_OF_ID, LossOperation, is_traced, precision


class BatchLoss(nn.Module, ABC):
    """A loss of a batch (abstract): a subclass defines `batch_loss`; the call checks the batch.

    Inside `torch.compile` and `torch.func` it is one operation, with a first derivative only.
    """

    def __new__(cls, *_: Any, **__: Any) -> Self:
        loss = super().__new__(cls)  # here, because copies are made without __init__
        LOSS_OF_ID[id(loss)] = loss
        return loss

    @abstractmethod
    def batch_loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Scalar loss of embeddings (m, d), in float32 or float64, with integer labels (m,)."""

    def forward(
        self, embeddings: Tensor, labels: Tensor, indices_tuple: object = None, ref_emb: object = None, ref_labels: object = None
    ) -> Tensor:
        """Scalar loss of embeddings (m, d) with integer labels (m,).

        The rest is what pytorch-metric-learning passes: `indices_tuple`, a miner's output, is ignored with a warning; references
        are refused, since they need `for_pytorch_metric_learning`.
        """
        rest = indices_tuple, ref_emb, ref_labels
        as_one = is_traced(embeddings) and not any(one is not None for one in rest)
        if not as_one or next(self.parameters(), None) is not None:  # proxies have a gradient too
            return self._on_checked(embeddings, labels, *rest)  # type: ignore[no-any-return]
        value: Tensor = LossOperation.apply(embeddings, torch.as_tensor(labels), id(self))[0]
        return value

    @torch.compiler.disable
    def _on_checked(self, embeddings: Tensor, labels: Tensor, *rest: object) -> Tensor:
        return self.batch_loss(*checked_batch(self, embeddings, labels, *rest))

    def extra_repr(self) -> str:
        return shown_options(self)


class PairLoss(BatchLoss):
    """A loss of the pairs of a batch (abstract): a subclass defines `pair_loss`, and describes its options under `Args:`.

    The call checks the batch, gives 0 with zero gradient (and one warning) for a batch without a positive or a negative pair,
    leaves autocast, and l2-normalizes the embeddings if the loss does. Memory is O(m²).

    Args:
        normalize: l2-normalize the embeddings first.

    Examples:
        >>> class MeanPositiveDistance(PairLoss):
        ...     def pair_loss(self, points, pairs):
        ...         return pairwise_distances(points)[pairs.positive].mean()
        >>> loss = MeanPositiveDistance()
        >>> loss(torch.tensor([[3.0, 0.0], [0.0, 2.0], [-1.0, 0.0], [0.0, 5.0]]), torch.tensor([0, 1, 0, 1]))
        tensor(1.)
    """

    def __init__(self, *, normalize: bool = True) -> None:
        super().__init__()
        self.normalize = flag("normalize", normalize)

    @abstractmethod
    def pair_loss(self, points: Tensor, pairs: Pairs) -> Tensor:
        """Scalar loss of points (m, d), normalized if the loss normalizes; there is a positive and a negative pair."""

    def batch_loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """0 with zero gradient for a batch without pairs; else `pair_loss`, in full precision."""
        pairs = batch_pairs(labels)
        if is_degenerate(self, pairs):
            return zero_loss(embeddings)
        with torch.autocast(embeddings.device.type, enabled=False):
            return self.pair_loss(unit_vectors(embeddings) if self.normalize else embeddings, pairs)


def checked_batch(
    loss: nn.Module, embeddings: Tensor, labels: Tensor, indices_tuple: object = None, *references: object, at_least: int = 1
) -> tuple[Tensor, Tensor]:
    """Embeddings (m, d) in float32 or float64 and labels (m,) on the same device, or a ValueError that says what is wrong.

    `indices_tuple` is ignored, with one warning per loss object: our losses look at the whole batch.
    """
    if any(one is not None for one in references):
        raise ValueError(
            f"{type(loss).__name__} compares the images of one batch; got ref_emb or ref_labels: "
            "wrap the loss, for_pytorch_metric_learning(loss)"
        )
    if not isinstance(embeddings, Tensor) or not embeddings.is_floating_point():
        is_tensor = isinstance(embeddings, Tensor)
        kind, way_out = (embeddings.dtype, ".float()") if is_tensor else (type(embeddings).__name__, "torch.as_tensor(…)")
        raise ValueError(
            f"embeddings must be a floating-point tensor of shape (batch, dimension); got {kind}: convert with {way_out}"
        )
    if embeddings.ndim != 2 or embeddings.shape[1] == 0:
        raise ValueError(
            f"embeddings must have shape (batch, dimension); got {tuple(embeddings.shape)}: pool to one vector per image"
        )
    labels = _checked_labels(labels)
    if labels.ndim != 1 or len(labels) != len(embeddings):
        raise ValueError(
            f"labels must have one entry per embedding; got shape {tuple(labels.shape)} for {len(embeddings)} embeddings: "
            "pass the labels of the same batch"
        )
    if len(embeddings) < at_least:
        raise ValueError("a batch needs images; got none: leave empty batches out")
    if not math.isfinite(float(embeddings.detach().sum())):  # cheap, and right unless finite numbers overflow: then look closer
        bad = torch.nonzero(~torch.isfinite(embeddings).all(dim=1)).flatten().tolist()
        if bad:
            raise ValueError(
                f"embeddings must be finite; {len(bad)} of {len(embeddings)} rows hold NaN or infinity, the first is row "
                f"{bad[0]}: lower the learning rate, clip gradients, or check the images"
            )
    if indices_tuple is not None:
        warn_once(loss, "indices_tuple", "the miner's output (indices_tuple) is ignored: the loss is that of the whole batch")
    return embeddings.to(precision(embeddings)), labels.to(embeddings.device)


def unit_vectors(embeddings: Tensor) -> Tensor:
    """Rows divided by their l2 norm, however long or short; a zero row stays zero, with zero gradient.

    The gradient is inversely proportional to a row's length. It is zero for rows so short (1e-33 in float32, 1e-303 in float64)
    that it would overflow.
    """
    norm = torch.linalg.vector_norm(embeddings.detach(), dim=1, keepdim=True)  # (m, 1)
    tiny = torch.finfo(norm.dtype).tiny
    usual = tiny**0.25, tiny**-0.25  # between these no square comes near overflow or underflow
    shortest, longest = map(float, norm.aminmax())
    if usual[0] <= shortest and longest <= usual[1]:
        inverse = norm.reciprocal()
    else:
        embeddings = _moderate(embeddings)
        inverse = _inverse_norms(embeddings.detach())
    unit: Tensor = _Normalize.apply(embeddings, inverse)
    return unit


class _Normalize(torch.autograd.Function):
    """Rows times their inverse norms. The gradient, (g − u·⟨u, g⟩) / norm, takes autograd three times as many operations."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, inverse: Tensor) -> Tensor:
        unit = rows * inverse
        ctx.save_for_backward(rows, unit, inverse)
        return unit

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        rows, unit, inverse = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of this gradient is wanted: it goes through the norm
            inverse = _inverse_norms(rows)
        gradient = upstream[0]
        return (gradient - unit * (unit * gradient).sum(dim=1, keepdim=True)) * inverse, None


def _inverse_norms(rows: Tensor) -> Tensor:
    """1 / norm of every row, 0 for a zero row. (m, 1)"""
    norm = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return torch.where(norm > 0, 1.0 / norm.clamp_min(torch.finfo(norm.dtype).tiny), 0.0)


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
    missing = "the same class" if pairs.n_positive == 0 else "different classes"
    warn_once(
        loss,
        "degenerate batch",
        f"a batch of {len(pairs.positive)} images has no pair of {missing}, so its loss is 0 with zero gradient: "
        "draw several images from each of several classes",
    )
    return True


def warn_once(loss: nn.Module, topic: str, message: str) -> None:
    """One warning on each topic per loss object."""
    topics: set[str] = loss.__dict__.setdefault("_warned_of", set())
    if topic not in topics:
        topics.add(topic)
        warnings.warn(f"{type(loss).__name__}: {message} (said once)", stacklevel=4)


def _checked_labels(labels: Any) -> Tensor:
    try:
        tensor: Tensor = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError):  # None, strings, ragged lists
        kind = type(labels).__name__
        raise ValueError(f"labels must be integers, one class id per image; got {kind}: pass a tensor of class ids") from None
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise ValueError(f"labels must be integers, one class id per image; got {tensor.dtype}: convert with .long()")
    return tensor


def _moderate(rows: Tensor) -> Tensor:
    """Each row divided by a power of two near its largest entry, which leaves its direction as it is to the last bit."""
    largest = rows.detach().abs().amax(dim=1, keepdim=True)  # (m, 1)
    bits, exponent_bits = (torch.int32, 0x7F800000) if rows.dtype == torch.float32 else (torch.int64, 0x7FF0000000000000)
    power_of_two = (largest.view(bits) & exponent_bits).view(rows.dtype)
    shortest = torch.finfo(rows.dtype).tiny * 2.0**16  # the gradient of a batch on a shorter row may overflow
    return torch.where(largest < shortest, rows.detach(), rows) / power_of_two.clamp(shortest, 1 / shortest)


def shown_options(loss: nn.Module) -> str:
    """The arguments of its constructor as they are now, for `repr`."""
    options = [name for name in inspect.signature(type(loss)).parameters if name in vars(loss)]
    return ", ".join(f"{name}={getattr(loss, name)!r}" for name in options)


def flag(name: str, value: Any) -> bool:
    """True or False, and nothing that merely counts as one."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False; got {value!r}: pass a bool")
    return bool(value)


def checked_loss(value: Any) -> nn.Module:
    """A module, to be called as loss(embeddings, labels)."""
    if not isinstance(value, nn.Module):
        raise ValueError(f"loss must be a module called as loss(embeddings, labels); got {value!r}: pass one of LOSSES")
    return value
