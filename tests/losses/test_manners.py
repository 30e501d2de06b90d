"""Losses as PyTorch modules: their state is in state_dict(), a wrapper leaves them alone, a compiled step holds them."""

import io

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from facetric.losses import LOSSES, FacilityLocationLoss, GlobalBatch, MarginDecay, MatryoshkaLoss, SubsampledLoss
from losses.test_facility_location import clustered


def stochastic(seed):
    def one():
        return SubsampledLoss(FacilityLocationLoss(inference="random", refine=None, seed=seed), 3, seed=seed)

    return MatryoshkaLoss({3: one(), clustered()[0].shape[1]: one()})


def test_the_state_holds_gamma_and_the_generators():
    embeddings, labels = clustered(m=40, n_classes=5)
    loss = stochastic(seed=1)
    decay = MarginDecay(loss, every=1, rate=0.5)
    loss(embeddings, labels)
    decay.step()
    file = io.BytesIO()
    torch.save({"loss": loss.state_dict(), "decay": decay.state_dict()}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)  # plain values and tensors only
    expected = [loss(embeddings, labels).item() for _ in range(3)]
    other = stochastic(seed=7)
    assert [other(embeddings, labels).item() for _ in range(3)] != expected
    other.load_state_dict(state["loss"])
    assert [other(embeddings, labels).item() for _ in range(3)] == expected
    resumed = MarginDecay(other, every=1, rate=0.5)
    resumed.load_state_dict(state["decay"])
    resumed.step()
    assert other.losses[0].loss.gamma(n_images=8) == 4 * 0.25


def test_a_gamma_that_was_changed_is_restored():
    loss = FacilityLocationLoss(3.0)
    state = loss.state_dict()
    loss.margin_weight = None
    loss.load_state_dict(state)
    assert loss.gamma(n_images=100) == 3.0


def test_a_global_batch_leaves_its_loss_alone():
    loss = FacilityLocationLoss()
    before = dict(vars(loss))
    embeddings, labels = clustered()
    wrapped = GlobalBatch(loss)
    assert vars(loss) == before
    assert wrapped(embeddings, labels).item() == loss(embeddings, labels).item()


@pytest.mark.parametrize("name", ["subsets", "global batch", *LOSSES])
def test_a_compiled_step_is_compiled_once(name):
    torch.compiler.reset()
    loss = {"subsets": SubsampledLoss(n_subsets=2), "global batch": GlobalBatch(FacilityLocationLoss())}.get(name) or LOSSES[
        name
    ]()
    network = torch.nn.Linear(6, 4)
    counter = CompileCounter()

    @torch.compile(backend=counter)
    def step(images, labels):
        return loss(network(images), labels)

    generator = torch.Generator().manual_seed(0)
    compiled = []
    for _ in range(4):
        images, labels = torch.randn(16, 6, generator=generator), torch.arange(16) % 4
        value = step(images, labels)
        assert value.item() == pytest.approx(loss(network(images), labels).item(), rel=1e-5) or name == "subsets"
        value.backward()
        compiled.append(counter.frame_count)
    assert compiled == [1] * 4
    assert network.weight.grad.abs().sum() > 0
