"""The losses that the paper compares with, one equation each: triplets, lifted structure, N-pairs, and what came before.

In all equations X are the embeddings f(Xᵢ) of a batch of m images, y their classes; P and N are the ordered pairs of images of
the same and of different classes, D is the Euclidean distance, and [·]₊ the hinge.
"""

from __future__ import annotations

import torch
from torch import Tensor

from facetric.losses.batch import PairLoss, Pairs, pairwise_distances
from facetric.losses.solver.problem import nonnegative

MARGIN_HINT = "the default is 1.0"


class ContrastiveLoss(PairLoss):
    """Pairs of one class are drawn together, pairs of different classes pushed at least α apart.

        ℓ(X, y) = 1/|P ∪ N| · ( Σ_{(i,j)∈P} D²ᵢⱼ + Σ_{(i,k)∈N} [ α − Dᵢₖ ]₊² )

    α is the `margin`. A negative pair further apart than α receives no gradient.

    Reference: R. Hadsell, S. Chopra, Y. LeCun. Dimensionality Reduction by Learning an Invariant Mapping. CVPR 2006.

    Args:
        margin: α, how far apart positives and negatives must be.
        normalize: l2-normalize the embeddings first.

    Examples:
        >>> embeddings, labels = torch.eye(4), torch.tensor([0, 0, 1, 1])
        >>> ContrastiveLoss(margin=1.0)(embeddings, labels)  # D² = 2 for all pairs, 4 of 12 are positive
        tensor(0.6667)
    """

    def __init__(self, margin: float = 1.0, *, normalize: bool = True) -> None:
        super().__init__(normalize=normalize)
        self.margin = nonnegative("margin", margin, hint=MARGIN_HINT)

    def pair_loss(self, points: Tensor, pairs: Pairs) -> Tensor:
        distances = pairwise_distances(points)  # (m, m)
        attraction = distances.square() * pairs.positive
        repulsion = torch.relu(self.margin - distances).square() * pairs.negative
        return (attraction + repulsion).sum() / (pairs.n_positive + pairs.n_negative)


class TripletLoss(PairLoss):
    """Every anchor and positive against every negative (the paper's first equation).

        ℓ(X, y) = 1/|T| · Σ_{(i,j,k)∈T} [ D²ᵢⱼ + α − D²ᵢₖ ]₊

    T are all triplets with y[i] = y[j] ≠ y[k], i ≠ j; α is the `margin`. Triplets that keep the margin receive no gradient.
    The negatives of each anchor are sorted once and summed by prefix, so that memory is O(m²) for O(m³) triplets.

    Reference: K. Q. Weinberger, J. Blitzer, L. K. Saul. Distance Metric Learning for Large Margin Nearest Neighbor
    Classification. NIPS 2006.

    Args:
        margin: α, how far apart positives and negatives must be.
        normalize: l2-normalize the embeddings first.

    Examples:
        >>> embeddings, labels = torch.eye(4), torch.tensor([0, 0, 1, 1])
        >>> TripletLoss(margin=0.5)(embeddings, labels)  # positives and negatives are equally far: the margin remains
        tensor(0.5000)
    """

    def __init__(self, margin: float = 1.0, *, normalize: bool = True) -> None:
        super().__init__(normalize=normalize)
        self.margin = nonnegative("margin", margin, hint=MARGIN_HINT)

    def pair_loss(self, points: Tensor, pairs: Pairs) -> Tensor:
        squared = pairwise_distances(points).square()  # (m, m)
        order = squared.detach().masked_fill(~pairs.negative, torch.inf).argsort(dim=1)  # (m, m) negatives first
        ranked = squared.masked_fill(~pairs.negative, 0.0).gather(1, order)
        n_negatives = pairs.negative.sum(dim=1, keepdim=True)
        beyond = torch.arange(len(points), device=points.device) >= n_negatives
        reach = squared + self.margin  # (m, m) for (i, j): negatives nearer than this violate
        n_violations = torch.searchsorted(ranked.detach().masked_fill(beyond, torch.inf), reach.detach().contiguous())
        prefix = torch.nn.functional.pad(ranked.cumsum(dim=1), (1, 0))  # (m, m + 1) sums of the nearest negatives
        terms = n_violations * reach - prefix.gather(1, n_violations)
        n_triplets = (pairs.positive.sum(dim=1) * n_negatives.flatten()).sum()
        return (terms * pairs.positive).sum() / n_triplets


class TripletSemihardLoss(PairLoss):
    """For every positive pair, the nearest negative that is further away than the positive; else the furthest negative.

        ℓ(X, y) = 1/|P| · Σ_{(i,j)∈P} [ D²ᵢⱼ + α − D²ᵢₖ ]₊
        k = argmin_{k: y[k] ≠ y[i]} D²ᵢₖ  subject to  D²ᵢₖ > D²ᵢⱼ,   or argmax_{k: y[k] ≠ y[i]} D²ᵢₖ if there is none

    α is the `margin` (the paper's Section 2.1). The choice of k receives no gradient, nor do triplets that keep the margin.
    The negatives of each anchor are sorted once.

    Reference: F. Schroff, D. Kalenichenko, J. Philbin. FaceNet: A Unified Embedding for Face Recognition and Clustering.
    CVPR 2015.

    Args:
        margin: α, how far apart positives and negatives must be.
        normalize: l2-normalize the embeddings first.

    Examples:
        >>> embeddings = torch.tensor([[0.0], [1.0], [1.5], [4.0]])
        >>> TripletSemihardLoss(margin=1.5, normalize=False)(embeddings, torch.tensor([0, 0, 1, 1]))  # (0.25 + 0 + 5.5 + 0) / 4
        tensor(1.4375)
    """

    def __init__(self, margin: float = 1.0, *, normalize: bool = True) -> None:
        super().__init__(normalize=normalize)
        self.margin = nonnegative("margin", margin, hint=MARGIN_HINT)

    def pair_loss(self, points: Tensor, pairs: Pairs) -> Tensor:
        squared = pairwise_distances(points).square()  # (m, m)
        with torch.no_grad():
            ranked, order = squared.masked_fill(~pairs.negative, torch.inf).sort(dim=1)
            place = torch.searchsorted(ranked, squared, right=True)  # (m, m) the first negative beyond each positive
            n_negatives = pairs.negative.sum(dim=1, keepdim=True)
            hardest = order.gather(1, torch.minimum(place, n_negatives - 1).clamp_min(0))  # (m, m) k for each (i, j)
        terms = squared + self.margin - squared.gather(1, hardest)
        return torch.relu(terms).masked_select(pairs.positive).mean()


class LiftedStructureLoss(PairLoss):
    """Every positive pair against all the negatives of both its ends, through a log-sum-exp.

        ℓ(X, y) = 1/(2|P|) · Σ_{(i,j)∈P} [ log( Σ_{(i,k)∈N} exp(α − Dᵢₖ) + Σ_{(j,l)∈N} exp(α − Dⱼₗ) ) + Dᵢⱼ ]₊²

    α is the `margin`; D is unsquared. A positive pair whose hinge is inactive gives no gradient. The paper (Section 2.2)
    does not normalize the embeddings for this loss.

    Reference: H. O. Song, Y. Xiang, S. Jegelka, S. Savarese. Deep Metric Learning via Lifted Structured Feature Embedding.
    CVPR 2016.

    Args:
        margin: α, how far apart positives and negatives must be.
        normalize: l2-normalize the embeddings first.

    Examples:
        >>> embeddings, labels = torch.eye(4), torch.tensor([0, 0, 1, 1])
        >>> LiftedStructureLoss()(embeddings, labels)  # (log 4 + α)² / 2
        tensor(2.8472)
    """

    def __init__(self, margin: float = 1.0, *, normalize: bool = False) -> None:
        super().__init__(normalize=normalize)
        self.margin = nonnegative("margin", margin, hint=MARGIN_HINT)

    def pair_loss(self, points: Tensor, pairs: Pairs) -> Tensor:
        distances = pairwise_distances(points)  # (m, m)
        repulsion = self.margin + (-distances).masked_fill(~pairs.negative, -torch.inf).logsumexp(dim=1)  # (m,)
        terms = torch.logaddexp(repulsion[:, None], repulsion[None, :]) + distances  # (m, m), symmetric
        return torch.relu(terms).square().masked_select(pairs.positive).mean() / 2.0


class NPairsLoss(PairLoss):
    """Softmax cross-entropy of every positive pair among the anchor's negatives, on dot products.

        ℓ(X, y) = −1/|P| · Σ_{(i,j)∈P} log( exp Sᵢⱼ / (exp Sᵢⱼ + Σ_{k: y[k] ≠ y[i]} exp Sᵢₖ) ) + λ/m · Σᵢ ‖f(Xᵢ)‖₂

    Sᵢⱼ = f(Xᵢ)ᵀf(Xⱼ), λ is `norm_weight`. All embeddings receive a gradient. The paper (Section 2.3) does not normalize the
    embeddings for this loss.

    Reference: K. Sohn. Improved Deep Metric Learning with Multi-class N-pair Loss Objective. NIPS 2016.

    Args:
        norm_weight: λ, the weight of the embeddings' norms.
        normalize: l2-normalize the embeddings first.

    Examples:
        >>> embeddings, labels = torch.eye(4), torch.tensor([0, 0, 1, 1])
        >>> NPairsLoss(norm_weight=0.0)(embeddings, labels)  # log 3: one positive and two negatives, all alike
        tensor(1.0986)
    """

    def __init__(self, norm_weight: float = 0.002, *, normalize: bool = False) -> None:
        super().__init__(normalize=normalize)
        self.norm_weight = nonnegative("norm_weight", norm_weight, hint="0 leaves the norms free")

    def pair_loss(self, points: Tensor, pairs: Pairs) -> Tensor:
        mean_norm: Tensor = torch.linalg.vector_norm(points, dim=1).mean()
        return npairs_cross_entropy(points @ points.T, pairs.positive, pairs.negative) + self.norm_weight * mean_norm


def npairs_cross_entropy(similarity: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """The first term: similarities (n_anchors, n_candidates) and which of them are positive and negative pairs."""
    negatives = similarity.masked_fill(~negative, -torch.inf).logsumexp(dim=1, keepdim=True)  # (n_anchors, 1)
    return torch.nn.functional.softplus(negatives - similarity).masked_select(positive).mean()


class AffinityLoss(PairLoss):
    """The squared Frobenius norm of the residual between predicted and true pairwise affinity.

        ℓ(X, y) = 1/m² · ‖ V·Vᵀ − Y·Yᵀ ‖²_F

    The rows of V are the embeddings (l2-normalized by default), those of Y the one-hot classes, so that (Y·Yᵀ)ᵢⱼ is 1 for pairs
    of the same class and 0 otherwise (the paper's Section 2.4). All embeddings receive a gradient.

    Reference: J. R. Hershey, Z. Chen, J. Le Roux, S. Watanabe. Deep Clustering: Discriminative Embeddings for Segmentation and
    Separation. ICASSP 2016.

    Args:
        normalize: l2-normalize the embeddings first.

    Examples:
        >>> embeddings, labels = torch.eye(4), torch.tensor([0, 0, 1, 1])
        >>> AffinityLoss()(embeddings, labels)  # 4 of 16 entries are 0 and should be 1
        tensor(0.2500)
    """

    def pair_loss(self, points: Tensor, pairs: Pairs) -> Tensor:
        return (points @ points.T - (~pairs.negative).to(points.dtype)).square().mean()
