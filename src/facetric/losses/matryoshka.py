"""A loss on an embedding and on its first dimensions at once (matryoshka representation learning, Kusupati et al. 2022)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from facetric.losses.solver.problem import whole


class MatryoshkaLoss(nn.Module):
    """The mean of a loss over prefixes of the embedding, so that its first dimensions also serve alone.

        ℓ(X, y) = 1/k · Σ_w ℓ_w(X[:, :w], y),   widths w₁ < … < w_k, of which the largest is usually the whole embedding

    Args:
        losses: width → the loss on that many dimensions. Each normalizes its prefix itself, if it normalizes at all.

    ``last`` is the explanation of the widest one, where it explains its batches.

    Reference: A. Kusupati et al. Matryoshka Representation Learning. NeurIPS 2022.

    Examples:
        >>> from facetric.losses import AffinityLoss
        >>> embeddings, labels = torch.eye(4), torch.tensor([0, 0, 1, 1])
        >>> MatryoshkaLoss({2: AffinityLoss(), 4: AffinityLoss()})(embeddings, labels)  # (0.375 + 0.25) / 2
        tensor(0.3125)
    """

    def __init__(self, losses: Mapping[int, nn.Module]) -> None:
        super().__init__()
        if not losses:
            raise ValueError("a matryoshka loss needs at least one width; got none: pass {64: loss, 512: another_loss}")
        hint = "a width is a number of dimensions"
        self.widths = sorted(whole("width", width, at_least=1, hint=hint) for width in losses)
        self.losses = nn.ModuleList(losses[width] for width in self.widths)

    @property
    def last(self) -> object:
        return getattr(self.losses[-1], "last", None)

    def extra_repr(self) -> str:
        return f"widths={self.widths}"

    @torch.compiler.disable
    def forward(self, embeddings: Tensor, labels: Tensor, indices_tuple: object = None) -> Tensor:
        """Scalar loss of embeddings (m, d) with integer labels (m,); `indices_tuple` (a miner's output) is ignored."""
        if self.widths[-1] > embeddings.shape[1]:
            raise ValueError(f"width {self.widths[-1]} exceeds the embedding ({embeddings.shape[1]}): lower it (loss.nested)")
        parts = zip(self.widths, self.losses, strict=True)
        return torch.stack([loss(embeddings[:, :width], labels) for width, loss in parts]).mean()
