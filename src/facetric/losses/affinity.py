"""Affinity loss of deep clustering (Hershey et al. 2016; the paper's Section 2.4)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from facetric.losses.arguments import flag
from facetric.losses.batch import batch_pairs, checked_batch, is_degenerate, unit_vectors, zero_loss


class AffinityLoss(nn.Module):
    """The squared Frobenius norm of the residual between predicted and true pairwise affinity.

        ℓ(X, y) = 1/m² · ‖ V·Vᵀ − Y·Yᵀ ‖²_F

    The rows of V are the embeddings (l2-normalized by default), those of Y the one-hot classes, so that (Y·Yᵀ)ᵢⱼ is 1 for pairs
    of the same class and 0 otherwise. Memory is O(m²).

    Args:
        normalize: l2-normalize the embeddings first.
    """

    def __init__(self, *, normalize: bool = True) -> None:
        super().__init__()
        self.normalize = flag("normalize", normalize)

    def extra_repr(self) -> str:
        return f"normalize={self.normalize}"

    def forward(self, embeddings: Tensor, labels: Tensor, indices_tuple: object = None) -> Tensor:
        """Scalar loss of embeddings (m, d) with integer labels (m,); `indices_tuple` (a miner's output) is ignored."""
        embeddings, labels = checked_batch(self, embeddings, labels, indices_tuple)
        pairs = batch_pairs(labels)
        if is_degenerate(self, pairs):
            return zero_loss(embeddings)
        with torch.autocast(embeddings.device.type, enabled=False):
            points = unit_vectors(embeddings) if self.normalize else embeddings
            return (points @ points.T - (~pairs.negative).to(points.dtype)).square().mean()
