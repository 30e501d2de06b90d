"""N-pairs embedding (Sohn 2016; the paper's Section 2.3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from facetric.losses.arguments import flag, nonnegative
from facetric.losses.batch import batch_pairs, checked_batch, is_degenerate, unit_vectors, zero_loss


class NPairsLoss(nn.Module):
    """Softmax cross-entropy of every positive pair among the anchor's negatives, on dot products.

        ℓ(X, y) = −1/|P| · Σ_{(i,j)∈P} log( exp Sᵢⱼ / (exp Sᵢⱼ + Σ_{k: y[k] ≠ y[i]} exp Sᵢₖ) ) + λ/m · Σᵢ ‖f(Xᵢ)‖₂

    P are the ordered pairs of the same class, Sᵢⱼ = f(Xᵢ)ᵀf(Xⱼ), λ is `norm_weight`. The paper does not normalize the
    embeddings for this loss. Memory is O(m²).

    Args:
        norm_weight: λ, the weight of the embeddings' norms.
        normalize: l2-normalize the embeddings first.
    """

    def __init__(self, norm_weight: float = 0.002, *, normalize: bool = False) -> None:
        super().__init__()
        self.norm_weight = nonnegative("norm_weight", norm_weight, hint="0 leaves the norms free")
        self.normalize = flag("normalize", normalize)

    def extra_repr(self) -> str:
        return f"norm_weight={self.norm_weight}, normalize={self.normalize}"

    def forward(self, embeddings: Tensor, labels: Tensor, indices_tuple: object = None) -> Tensor:
        """Scalar loss of embeddings (m, d) with integer labels (m,); `indices_tuple` (a miner's output) is ignored."""
        embeddings, labels = checked_batch(self, embeddings, labels, indices_tuple)
        pairs = batch_pairs(labels)
        if is_degenerate(self, pairs):
            return zero_loss(embeddings)
        with torch.autocast(embeddings.device.type, enabled=False):
            points = unit_vectors(embeddings) if self.normalize else embeddings
            mean_norm: Tensor = torch.linalg.vector_norm(points, dim=1).mean()
            return npairs_cross_entropy(points @ points.T, pairs.positive, pairs.negative) + self.norm_weight * mean_norm


def npairs_cross_entropy(similarity: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """The first term: similarities (n_anchors, n_candidates) and which of them are positive and negative pairs."""
    negatives = similarity.masked_fill(~negative, -torch.inf).logsumexp(dim=1, keepdim=True)  # (n_anchors, 1)
    return torch.nn.functional.softplus(negatives - similarity).masked_select(positive).mean()
