"""The loss averaged over random subsets of the batch: the future work that the paper's conclusion proposes."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class SubsampledLoss(nn.Module):
    """The mean of `loss` over `n_subsets` random subsets of the batch, each of `subset_size` images without replacement.
    Half of the batch when `subset_size` is left out.

    "Cluster several random subsets of the data within the training batch and then average the loss gradient", in the spirit of
    the Bag of Little Bootstraps. A subset that is trivial for the loss (one class, say) contributes 0 to the mean.
    """

    def __init__(self, loss: nn.Module, n_subsets: int = 16, subset_size: int | None = None, *, seed: int = 0) -> None:
        super().__init__()
        if n_subsets < 1:
            raise ValueError(f"n_subsets must be at least 1; got {n_subsets}: each subset is one clustering")
        if subset_size is not None and subset_size < 2:
            raise ValueError(f"subset_size must be at least 2; got {subset_size}: a subset of one image cannot be clustered")
        self.loss = loss
        self.n_subsets = n_subsets
        self.subset_size = subset_size
        self.generator = torch.Generator().manual_seed(seed)

    def forward(self, embeddings: Tensor, labels: Tensor, indices_tuple: object = None) -> Tensor:
        """Scalar loss of embeddings (m, d) with integer labels (m,); `indices_tuple` is accepted and ignored."""
        m = len(embeddings)
        size = max(m // 2, min(m, 2)) if self.subset_size is None else self.subset_size
        if size > m:
            raise ValueError(f"subset_size ({size}) exceeds the batch ({m}): enlarge the batch or lower subset_size")
        labels = torch.as_tensor(labels)
        values = []
        for _ in range(self.n_subsets):
            subset = torch.randperm(m, generator=self.generator)[:size]
            values.append(self.loss(embeddings[subset.to(embeddings.device)], labels[subset.to(labels.device)]))
        return torch.stack(values).mean()
