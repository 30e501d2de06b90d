"""Triplet loss over every triplet of the batch (the paper's first equation)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from facetric.losses.arguments import flag, nonnegative
from facetric.losses.batch import batch_pairs, checked_batch, is_degenerate, pairwise_distances, unit_vectors, zero_loss


class TripletLoss(nn.Module):
    """Every anchor and positive against every negative.

        ℓ(X, y) = 1/|T| · Σ_{(i,j,k)∈T} [ D²ᵢⱼ + α − D²ᵢₖ ]₊

    T are all triplets with y[i] = y[j] ≠ y[k], i ≠ j, D the Euclidean distance, α the `margin`. The negatives of each anchor
    are sorted once and summed by prefix, so that memory is O(m²) although there are O(m³) triplets.

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
            squared = pairwise_distances(unit_vectors(embeddings) if self.normalize else embeddings).square()  # (m, m)
            order = squared.detach().masked_fill(~pairs.negative, torch.inf).argsort(dim=1)  # (m, m) negatives first
            ranked = squared.masked_fill(~pairs.negative, 0.0).gather(1, order)
            n_negatives = pairs.negative.sum(dim=1, keepdim=True)
            beyond = torch.arange(len(labels), device=labels.device) >= n_negatives
            reach = squared + self.margin  # (m, m) for (i, j): negatives nearer than this violate
            n_violations = torch.searchsorted(ranked.detach().masked_fill(beyond, torch.inf), reach.detach().contiguous())
            prefix = torch.nn.functional.pad(ranked.cumsum(dim=1), (1, 0))  # (m, m + 1) sums of the nearest negatives
            terms = n_violations * reach - prefix.gather(1, n_violations)
            n_triplets = (pairs.positive.sum(dim=1) * n_negatives.flatten()).sum()
            return (terms * pairs.positive).sum() / n_triplets
