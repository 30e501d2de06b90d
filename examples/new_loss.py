"""A loss of your own: its equation in one method; checks, pairs and normalization are there. Run: python examples/new_loss.py

From the folder of this file `facetric train --set loss.name=new_loss.LogisticLoss --set loss.options.scale=8` trains with it.
"""

import torch
from torch import Tensor

from facetric.losses import LOSSES, PairLoss, SubsampledLoss, build_loss


class LogisticLoss(PairLoss):
    """Logistic regression on cosine similarities: every pair is classified as same or different.

    Args:
        scale: what similarities are multiplied by.
        normalize: l2-normalize the embeddings first.
    """

    def __init__(self, scale: float = 4.0, *, normalize: bool = True) -> None:
        super().__init__(normalize=normalize)
        self.scale = scale

    def pair_loss(self, points: Tensor, pairs) -> Tensor:
        logits = self.scale * points @ points.T  # (m, m)
        positive = torch.nn.functional.softplus(-logits).masked_select(pairs.positive)
        negative = torch.nn.functional.softplus(logits).masked_select(pairs.negative)
        return positive.mean() + negative.mean()


LOSSES["logistic"] = LogisticLoss  # optional: a name without a dot

if __name__ == "__main__":
    torch.manual_seed(0)
    embeddings, labels = torch.nn.Parameter(torch.randn(64, 8)), torch.arange(64) % 8
    loss = SubsampledLoss(build_loss("logistic", {"scale": 8.0}))
    print(loss)
    optimizer = torch.optim.Adam([embeddings], lr=0.05)
    for step in range(101):
        optimizer.zero_grad()
        value = loss(embeddings, labels)
        value.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {value.item():.3f}")
