"""Our losses inside the wrappers of pytorch-metric-learning; `for_pytorch_metric_learning` is the door."""

from __future__ import annotations

import torch
from pytorch_metric_learning.losses import BaseMetricLossFunction
from torch import Tensor, nn

from facetric.losses.batch import checked_batch


class ContrastiveLoss(BaseMetricLossFunction):
    """A loss that takes reference embeddings too: it is the loss of the batch and the references together.

    pytorch-metric-learning admits losses to its wrappers by the name of their class, from a fixed list; hence the name.
    """

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    @property
    def last(self) -> object:
        return getattr(self.loss, "last", None)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: object = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """Scalar loss; `indices_tuple`, the pairs that a miner or a memory chose, is not needed: the loss looks at all images."""
        if ref_emb is None:
            return self.loss(embeddings, labels)  # type: ignore[no-any-return]
        if ref_labels is None:
            raise ValueError("reference embeddings need labels: pass ref_labels, one per row of ref_emb")
        embeddings, labels = checked_batch(self.loss, embeddings, labels)
        ref_emb, ref_labels = checked_batch(self.loss, ref_emb, ref_labels, at_least=0)
        new = _not_in(embeddings, ref_emb)
        rows, classes = torch.cat([embeddings, ref_emb[new].to(embeddings)]), torch.cat([labels, ref_labels.to(labels)[new]])
        return self.loss(rows, classes)  # type: ignore[no-any-return]

    def _get_name(self) -> str:
        return "for_pytorch_metric_learning"


@torch.no_grad()
def _not_in(embeddings: Tensor, references: Tensor) -> Tensor:
    """Which references are no copy of a row of the batch. (n,) bool"""
    nearest = torch.cdist(references.to(embeddings.dtype), embeddings, compute_mode="donot_use_mm_for_euclid_dist").amin(dim=1)
    return nearest > 0
