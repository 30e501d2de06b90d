"""What a loss says once: a batch without anything to compare, and a miner whose choice it ignores."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from facetric.losses import LOSSES, FacilityLocationLoss, GlobalBatch, SubsampledLoss

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


@pytest.mark.parametrize("name", MAKERS)
def test_a_batch_of_one_image_gives_zero_and_warns_once(name):
    """The last batch of a data loader may be one."""
    loss = MAKERS[name]()
    embeddings = torch.randn(1, 3, requires_grad=True)
    with pytest.warns(UserWarning, match="has no pair of the same class, so its loss is 0") as said:
        value = loss(embeddings, torch.tensor([7]))
    assert len(said) == 1
    value.backward()
    assert value.item() == 0.0
    assert embeddings.grad.abs().max() == 0.0
    silent(loss, embeddings, torch.tensor([7]))


def test_a_batch_of_one_image_is_explained():
    embeddings, labels = torch.randn(1, 3), torch.tensor([7])
    for loss in (FacilityLocationLoss(), SubsampledLoss()):
        with pytest.warns(UserWarning, match="has no pair"):
            loss(embeddings, labels)
        assert (loss.last.value, loss.last.margin, loss.last.active) == (0.0, 0.0, False)


def test_training_goes_on_after_a_last_batch_of_one_image_or_of_one_class():
    dataset = TensorDataset(torch.randn(199, 5, generator=torch.Generator().manual_seed(0)), torch.arange(199) % 6)
    network, loss = nn.Linear(5, 4), SubsampledLoss(n_subsets=2)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)

    def train():
        for images, labels in DataLoader(dataset, batch_size=66):  # 66, 66, 66 and 1
            optimizer.zero_grad()
            value = loss(network(images), labels)
            value.backward()
            optimizer.step()
            yield value.item() > 0

    with pytest.warns(UserWarning, match="has no pair of the same class") as said:
        assert list(train()) == [True, True, True, False]
    assert len(said) == 1
    assert torch.isfinite(network.weight).all()


def test_a_batch_smaller_than_a_subset_is_taken_whole_and_said_once():
    loss = SubsampledLoss(FacilityLocationLoss(), n_subsets=1, subset_size=48)
    embeddings, labels = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 4
    with pytest.warns(
        UserWarning, match=r"SubsampledLoss: subset_size \(48\) exceeds the batch \(20\), which is taken whole"
    ) as said:
        value = loss(embeddings, labels)
    assert len(said) == 1
    assert value.item() == pytest.approx(FacilityLocationLoss()(embeddings, labels).item())
    silent(loss, embeddings, labels)


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
