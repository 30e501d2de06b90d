"""Contrastive loss (Hadsell et al. 2006), the seminal method of the paper's related work."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from facetric.losses.arguments import flag, nonnegative
from facetric.losses.batch import batch_pairs, checked_batch, is_degenerate, pairwise_distances, unit_vectors, zero_loss


class ContrastiveLoss(nn.Module):
    """Pairs of one class are drawn together, pairs of different classes pushed at least α apart.

        ℓ(X, y) = 1/|P ∪ N| · ( Σ_{(i,j)∈P} D²ᵢⱼ + Σ_{(i,k)∈N} [ α − Dᵢₖ ]₊² )

    P and N are all pairs of the same and of different classes, D the Euclidean distance, α the `margin`. Memory is O(m²).

    Args:
        margin: α, how far apart positives and negatives must be.
        normalize: l2-normalize the embeddings first.
    """

    def __init__(self, margin: float = 1.0, *, normalize: bool = True) -> None:
        super().__init__()
        self.margin = nonnegative("margin", margin, hint="the default is 1.0")
        self.normalize = flag("normalize", normalize)

    def extra_repr(self) -> str:
        return f"margin={self.margin}, normalize={self.normalize}"

    def forward(self, embeddings: Tensor, labels: Tensor, indices_tuple: object = None) -> Tensor:
        """Scalar loss of embeddings (m, d) with integer labels (m,); `indices_tuple` (a miner's output) is ignored."""
        embeddings, labels = checked_batch(self, embeddings, labels, indices_tuple)
        pairs = batch_pairs(labels)
        if is_degenerate(self, pairs):
            return zero_loss(embeddings)
        with torch.autocast(embeddings.device.type, enabled=False):
            distances = pairwise_distances(unit_vectors(embeddings) if self.normalize else embeddings)  # (m, m)
            attraction = distances.square() * pairs.positive
            repulsion = torch.relu(self.margin - distances).square() * pairs.negative
            return (attraction + repulsion).sum() / (pairs.n_positive + pairs.n_negative)
