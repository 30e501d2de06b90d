"""Triplet loss with semi-hard negatives (FaceNet; the paper's Section 2.1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from facetric.losses.arguments import flag, nonnegative
from facetric.losses.batch import batch_pairs, checked_batch, is_degenerate, pairwise_distances, unit_vectors, zero_loss


class TripletSemihardLoss(nn.Module):
    """For every positive pair, the nearest negative that is further away than the positive; else the furthest negative.

        ℓ(X, y) = 1/|P| · Σ_{(i,j)∈P} [ D²ᵢⱼ + α − D²ᵢₖ ]₊
        k = argmin_{k: y[k] ≠ y[i]} D²ᵢₖ  subject to  D²ᵢₖ > D²ᵢⱼ,   or argmax_{k: y[k] ≠ y[i]} D²ᵢₖ if there is none

    P are the ordered pairs of the same class, D the Euclidean distance, α the `margin`. The choice of k receives no gradient.
    The negatives of each anchor are sorted once, so memory is O(m²).

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
            with torch.no_grad():
                ranked, order = squared.masked_fill(~pairs.negative, torch.inf).sort(dim=1)
                place = torch.searchsorted(ranked, squared, right=True)  # (m, m) the first negative beyond each positive
                n_negatives = pairs.negative.sum(dim=1, keepdim=True)
                hardest = order.gather(1, torch.minimum(place, n_negatives - 1).clamp_min(0))  # (m, m) k for each (i, j)
            terms = squared + self.margin - squared.gather(1, hardest)
            return torch.relu(terms).masked_select(pairs.positive).mean()
