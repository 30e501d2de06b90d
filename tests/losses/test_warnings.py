"""What a loss says once: a batch without anything to compare, and a miner whose choice it ignores."""

import warnings

import pytest
import torch
from torch import nn

from facetric.losses import LOSSES, GlobalBatch, SubsampledLoss

MAKERS = {
    **LOSSES,
    "global batch": lambda: GlobalBatch(LOSSES["facility_location"]()),
    "subsets of another loss": lambda: SubsampledLoss(LOSSES["triplet"](), n_subsets=2),
}


def silent(loss, *batch):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return loss(*batch)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    ("labels", "missing"), [([4] * 6, "different classes"), (list(range(6)), "the same class")], ids=["one class", "all distinct"]
)
def test_a_degenerate_batch_gives_zero_and_warns_once(name, labels, missing):
    loss = MAKERS[name]()
    embeddings = torch.randn(6, 3, requires_grad=True)
    with pytest.warns(UserWarning, match=f"a batch of 6 images has no pair of {missing}.*: draw several images") as said:
        value = loss(embeddings, torch.tensor(labels))
    assert len(said) == 1
    value.backward()
    assert value.item() == 0.0
    assert embeddings.grad.abs().max() == 0.0
    silent(loss, embeddings, torch.tensor(labels))


def test_subsets_of_a_loss_that_says_nothing_warn_too():
    class Silent(nn.Module):
        def forward(self, embeddings, labels):
            return embeddings.sum() * 0.0

    with pytest.warns(UserWarning, match="Silent: a batch of 6 images has no pair of the same class"):
        SubsampledLoss(Silent())(torch.randn(6, 3), torch.arange(6))


@pytest.mark.parametrize("name", MAKERS)
def test_an_ignored_miner_is_mentioned_once(name):
    loss = MAKERS[name]()
    embeddings, labels = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    mined = tuple(torch.zeros(1, dtype=torch.long) for _ in range(4))
    plain = silent(MAKERS[name](), embeddings, labels)
    with pytest.warns(UserWarning, match=r"the miner's output \(indices_tuple\) is ignored") as said:
        value = loss(embeddings, labels, mined)
    assert len(said) == 1
    assert value.item() == plain.item()
    silent(loss, embeddings, labels, mined)
    silent(loss, embeddings, labels, None)
