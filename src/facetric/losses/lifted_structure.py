"""Lifted structured embedding (Song et al. 2016; the paper's Section 2.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from facetric.losses.arguments import flag, nonnegative
from facetric.losses.batch import batch_pairs, checked_batch, is_degenerate, pairwise_distances, unit_vectors, zero_loss


class LiftedStructureLoss(nn.Module):
    """Every positive pair against all the negatives of both its ends, through a log-sum-exp.

        ℓ(X, y) = 1/(2|P|) · Σ_{(i,j)∈P} [ log( Σ_{(i,k)∈N} exp(α − Dᵢₖ) + Σ_{(j,l)∈N} exp(α − Dⱼₗ) ) + Dᵢⱼ ]₊²

    P and N are the pairs of the same and of different classes, D the Euclidean distance (unsquared), α the `margin`. The paper
    does not normalize the embeddings for this loss. Memory is O(m²).

    Args:
        margin: α, how far apart positives and negatives must be.
        normalize: l2-normalize the embeddings first.
    """

    def __init__(self, margin: float = 1.0, *, normalize: bool = False) -> None:
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
            repulsion = self.margin + (-distances).masked_fill(~pairs.negative, -torch.inf).logsumexp(dim=1)  # (m,)
            terms = torch.logaddexp(repulsion[:, None], repulsion[None, :]) + distances  # (m, m), symmetric
            return torch.relu(terms).square().masked_select(pairs.positive).mean() / 2.0
