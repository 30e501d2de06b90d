"""The losses inside the real pytorch-metric-learning: its trainer, and its own losses as a second opinion."""

from contextlib import nullcontext

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning import miners, trainers
from torch import nn

from facetric.losses import LOSSES, FacilityLocationLoss, TripletLoss

# Their trainer turns the loss into a float for its progress bar without detaching it; newer torch warns of that.
pytestmark = pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True to a scalar")


def small_dataset():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(80) % 10
    images = torch.randn(10, 6, generator=generator)[labels] + 0.5 * torch.randn(80, 6, generator=generator)
    return torch.utils.data.TensorDataset(images, labels)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("with_miner", [False, True])
def test_every_loss_trains_in_the_metric_loss_only_trainer(name, with_miner):
    torch.manual_seed(0)
    trunk, embedder = nn.Linear(6, 8), nn.Linear(8, 4)
    before = [p.clone() for p in embedder.parameters()]
    trainer = trainers.MetricLossOnly(
        models={"trunk": trunk, "embedder": embedder},
        optimizers={
            "trunk_optimizer": torch.optim.Adam(trunk.parameters()),
            "embedder_optimizer": torch.optim.Adam(embedder.parameters()),
        },
        batch_size=40,
        loss_funcs={"metric_loss": LOSSES[name]()},
        dataset=small_dataset(),
        mining_funcs={"tuple_miner": miners.MultiSimilarityMiner()} if with_miner else {},
        dataloader_num_workers=0,
    )
    with pytest.warns(UserWarning, match="indices_tuple.* ignored") if with_miner else nullcontext():
        trainer.train(num_epochs=2)
    assert all(torch.isfinite(p).all() for p in embedder.parameters())
    assert any((p != q).any() for p, q in zip(embedder.parameters(), before, strict=True))


def test_the_clustering_loss_falls_under_their_trainer():
    torch.manual_seed(0)
    dataset = small_dataset()
    trunk = nn.Linear(6, 4)
    loss = FacilityLocationLoss(2.0)
    images, labels = dataset.tensors
    before = loss(trunk(images), labels).item()
    trainers.MetricLossOnly(
        models={"trunk": trunk},
        optimizers={"trunk_optimizer": torch.optim.Adam(trunk.parameters(), lr=0.01)},
        batch_size=80,
        loss_funcs={"metric_loss": loss},
        dataset=dataset,
        dataloader_num_workers=0,
    ).train(num_epochs=60)
    assert loss(trunk(images), labels).item() < 0.7 * before


def test_the_triplet_loss_equals_theirs_up_to_the_number_of_triplets():
    """Theirs averages over the violated triplets, the paper over all; on squared distances of unit vectors the sums agree."""
    from pytorch_metric_learning.distances import LpDistance
    from pytorch_metric_learning.reducers import MeanReducer

    embeddings, labels = small_dataset().tensors
    theirs = pml_losses.TripletMarginLoss(margin=0.3, distance=LpDistance(power=2), reducer=MeanReducer())
    assert TripletLoss(0.3)(embeddings, labels).item() == pytest.approx(theirs(embeddings, labels).item(), rel=1e-4)
