"""Losses as PyTorch modules: state_dict(), copies, wrappers and eval mode; one operation to torch.compile and torch.func."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses as pml_losses
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters

from facetric.losses import (
    LOSSES,
    FacilityLocationLoss,
    GlobalBatch,
    MarginDecay,
    MatryoshkaLoss,
    SubsampledLoss,
    TripletLoss,
    for_pytorch_metric_learning,
)
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


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda parts: pickle.loads(pickle.dumps(parts))], ids=["deepcopy", "pickle"])
def test_a_copy_goes_on_as_the_original(copied):
    batch = clustered(m=40, n_classes=5)
    loss = stochastic(seed=1)
    parts = torch.nn.ModuleDict({"loss": loss, "decay": MarginDecay(loss, every=2, rate=0.5)})

    def go_on(parts):
        values = []
        for _ in range(3):
            values.append(parts["loss"](*batch).item())
            parts["decay"].step()
        return values, parts["loss"].last.margin_weight

    go_on(parts)
    others = copied(parts)
    expected = go_on(parts)
    assert go_on(others) == expected
    assert expected[1] == 20 / 2 * 0.5**2
    assert go_on(others) != expected


def test_a_schedule_is_in_the_state_of_the_module_that_it_is_part_of():
    class Training(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.loss = SubsampledLoss()
            self.decay = MarginDecay(self.loss, every=2, rate=0.5)

    first, second = Training(), Training()
    for _ in range(3):
        first.decay.step()
    second.load_state_dict(first.state_dict())
    for one in (first, second):
        one.decay.step()
        assert one.loss.loss.margin_scale == 0.25
    assert list(first.state_dict()) == ["loss._extra_state", "loss.loss._extra_state", "decay._extra_state"]
    assert "MarginDecay(every=2, rate=0.5, floor=0.05)" in repr(first)


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


@pytest.mark.parametrize("wrap", [GlobalBatch, for_pytorch_metric_learning, lambda loss: MatryoshkaLoss({6: loss})])
@pytest.mark.parametrize("make", [FacilityLocationLoss, SubsampledLoss, TripletLoss])
def test_a_wrapper_explains_what_its_loss_does(wrap, make):
    loss = make()
    wrapped = wrap(loss)
    assert wrapped.last is None
    wrapped(*clustered())
    assert wrapped.last is getattr(loss, "last", None)


@pytest.mark.parametrize(
    "make", [SubsampledLoss, lambda: FacilityLocationLoss(inference="random", refine=None), lambda: stochastic(3)]
)
def test_a_loss_in_eval_mode_repeats_itself_and_moves_no_generator(make):
    batch = clustered(m=40, n_classes=5)
    watched, undisturbed = make(), make()
    first = watched.eval()(*batch).item()
    for _ in range(3):
        watched.train()
        assert watched(*batch).item() == undisturbed(*batch).item()
        watched.eval()
        assert [watched(*batch).item() for _ in range(2)] == [first] * 2
    other = make()
    other.load_state_dict(watched.state_dict())
    assert other.eval()(*batch).item() == first


ONE_OPERATION = {
    **LOSSES,
    "subsets": lambda: SubsampledLoss(FacilityLocationLoss(inference="stochastic"), n_subsets=2),
    "global batch": lambda: GlobalBatch(SubsampledLoss(n_subsets=2)),
    "matryoshka": lambda: MatryoshkaLoss({2: SubsampledLoss(n_subsets=2), 4: TripletLoss()}),
}


def small_batches(n):
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(16, 6, generator=generator), torch.arange(16) % 4) for _ in range(n)]


@pytest.mark.parametrize("name", ONE_OPERATION)
def test_a_step_is_compiled_once_as_one_graph_and_computes_what_it_does_without(name):
    torch.compiler.reset()
    counters.clear()
    torch.manual_seed(0)
    loss, plain, network = ONE_OPERATION[name](), ONE_OPERATION[name](), torch.nn.Linear(6, 4)
    decays = [MarginDecay(one, every=1, rate=0.5) for one in (loss, plain) if "facility" in name or "subsets" in name]
    counter = CompileCounterWithBackend("aot_eager")
    step = torch.compile(lambda images, labels: loss(network(images), labels), backend=counter, fullgraph=True)
    for images, labels in small_batches(4):
        found, expected = step(images, labels), plain(network(images), labels)
        (gradient,), (expected_gradient,) = (torch.autograd.grad(3 * one, network.weight) for one in (found, expected))
        assert torch.equal(found, expected)
        torch.testing.assert_close(gradient, expected_gradient)
        assert gradient.abs().max() > 0
        for decay in decays:
            decay.step()
    assert counter.frame_count == counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]


def test_a_compiled_loss_takes_any_precision_and_mode_and_refuses_bad_batches():
    torch.compiler.reset()
    ((embeddings, labels),) = small_batches(1)
    loss = FacilityLocationLoss()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    for dtype in (torch.float64, torch.bfloat16):
        value = compiled(embeddings.to(dtype), labels)
        assert value.dtype == loss(embeddings.to(dtype), labels).dtype
        assert value.item() == loss(embeddings.to(dtype), labels).item()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert compiled(embeddings.clone(), labels).item() == loss(embeddings, labels).item()
    with pytest.raises(ValueError, match=r"labels must have one entry per embedding; got shape \(3,\) for 16"):
        compiled(embeddings, labels[:3])
    with pytest.warns(UserWarning, match="no pair of different classes"):
        assert compiled(embeddings, labels * 0).item() == 0.0


def test_a_compiled_step_refuses_a_second_derivative():
    torch.compiler.reset()
    ((images, labels),) = small_batches(1)
    network, loss = torch.nn.Linear(6, 4), FacilityLocationLoss()
    value = torch.compile(lambda x, y: loss(network(x), y), backend="aot_eager")(images, labels)
    (gradient,) = torch.autograd.grad(value, network.weight, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        gradient.square().sum().backward()


def test_proxies_in_a_compiled_step_keep_their_gradient():
    torch.compiler.reset()
    ((embeddings, labels),) = small_batches(1)
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        loss = SubsampledLoss(pml_losses.ProxyAnchorLoss(num_classes=4, embedding_size=6), n_subsets=2)
        step = torch.compile(lambda x, y, loss=loss: loss(x, y), backend="aot_eager") if compiled else loss
        step(embeddings, labels).backward()
        found.append(loss.loss.proxies.grad)
    torch.testing.assert_close(*found)
    assert found[0].abs().max() > 0


@pytest.mark.parametrize("name", ONE_OPERATION)
def test_torch_func_differentiates_and_maps_a_loss(name):
    batches = small_batches(3)
    plain, loss, mapped = (ONE_OPERATION[name]() for _ in range(3))
    points = torch.stack([embeddings for embeddings, _ in batches])
    expected = []
    for one in points:
        leaf = one.clone().requires_grad_()
        expected += torch.autograd.grad(plain(leaf, batches[0][1]), leaf)
    for one, gradient in zip(points, expected, strict=True):
        assert torch.equal(torch.func.grad(loss)(one, batches[0][1]), gradient)
    assert torch.equal(torch.func.vmap(torch.func.grad(mapped), in_dims=(0, None))(points, batches[0][1]), torch.stack(expected))


def test_torch_func_refuses_a_second_derivative_in_one_line():
    ((embeddings, labels),) = small_batches(1)
    loss = FacilityLocationLoss()
    with pytest.raises(
        ValueError, match=r"^a loss has no second derivative under torch.func: use torch.autograd.grad"
    ) as refused:
        torch.func.grad(lambda x: torch.func.grad(loss)(x, labels).square().sum())(embeddings)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ONE_OPERATION)
@pytest.mark.parametrize("given", [{"ref_emb": torch.zeros(4, 6)}, {"ref_labels": torch.arange(4)}], ids=str)
def test_references_of_pytorch_metric_learning_are_refused_in_one_line(name, given):
    ((embeddings, labels),) = small_batches(1)
    with pytest.raises(ValueError, match=r"got ref_emb or ref_labels: wrap the loss, for_pytorch_metric_learning\(loss\)$"):
        ONE_OPERATION[name]()(embeddings, labels, **given)


@pytest.mark.parametrize("name", ONE_OPERATION)
@pytest.mark.parametrize("of", [np.asarray, torch.Tensor.tolist, lambda tensor: None], ids=["array", "list", "none"])
def test_what_is_no_tensor_is_refused_in_one_line(name, of):
    ((embeddings, labels),) = small_batches(1)
    wrapped = for_pytorch_metric_learning(ONE_OPERATION[name]())
    rule = r"^embeddings must be a floating-point tensor .*; got (ndarray|list|NoneType): convert with torch\.as_tensor"
    with pytest.raises(ValueError, match=rule):
        ONE_OPERATION[name]()(of(embeddings), labels)
    if of(embeddings) is not None:
        with pytest.raises(ValueError, match=rule):
            wrapped(embeddings, labels, ref_emb=of(embeddings), ref_labels=labels)


def test_what_is_no_loss_per_width_is_refused_in_one_line():
    for losses, message in (([2, 4], r"at least one width; got \[2, 4\]"), ({2: 3}, "loss must be a module called as loss")):
        with pytest.raises(ValueError, match=message):
            MatryoshkaLoss(losses)
