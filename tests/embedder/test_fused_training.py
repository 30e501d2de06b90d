"""Frozen batch normalization in fused passes: the same outputs and gradients as the modules one by one."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from facetric.embedder import Network, build_network
from facetric.embedder.fused_training import depthwise_weight_gradient, fused
from facetric.embedder.split import Halves


def gradients(embedder: Network, activations: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Of a weighted sum of the embeddings, by the parameter's name."""
    embedder.zero_grad()
    (embedder.from_activations(activations) * weights).sum().backward()
    return {name: tensor.grad.double() for name, tensor in embedder.named_parameters() if tensor.grad is not None}


def one_by_one(embedder: Network) -> Network:
    other = copy.deepcopy(embedder)
    halves = None if other._split is None else Halves(other.backbone, other._split)
    other._passes = {other.training: (other.backbone, halves)}
    return other


def is_fused(embedder: Network) -> bool:
    return embedder._passes[embedder.training][0] is not embedder.backbone


def with_statistics(name: str, freeze_through: str | None, size: int | None = None) -> Network:
    embedder = build_network(name, weights="none", freeze_through=freeze_through, image_size=size)
    embedder.freeze_batchnorm = True  # build_network trains it where weights are random
    generator = torch.Generator().manual_seed(0)
    for module in embedder.backbone.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.copy_(0.1 * torch.randn(module.running_mean.shape, generator=generator))
            module.running_var.copy_(1 + 0.5 * torch.rand(module.running_var.shape, generator=generator))
    return embedder.train()


@pytest.mark.parametrize(
    ("name", "freeze_through"),
    [("tf_efficientnet_lite0", "blocks.4"), pytest.param("tf_efficientnet_lite0", "blocks.1", marks=pytest.mark.slow),
     ("resnet18", "layer3"), ("mobilenetv3_small_050", "blocks.3"), ("glyphnet", "stages.1")],
)  # fmt: skip
def test_gradients_are_as_near_to_those_in_float64_as_those_of_the_modules(name: str, freeze_through: str) -> None:
    embedder = with_statistics(name, freeze_through)
    spec, generator = embedder.preprocessing, torch.Generator().manual_seed(1)
    size = min(spec.crop, 64)
    with torch.no_grad():
        activations = embedder.trunk(torch.randn(6, spec.channels, size, size, generator=generator))
    weights = torch.randn(6, embedder.dim, generator=generator)
    found = gradients(embedder, activations, weights)
    assert is_fused(embedder)
    plain = gradients(one_by_one(embedder), activations, weights)
    exact = gradients(one_by_one(embedder).double(), activations.double(), weights.double())
    assert found.keys() == plain.keys() == exact.keys()
    ours, torchs = errors(found, exact), errors(plain, exact)
    assert max(ours) <= 0.01
    assert sum(ours) <= 5 * sum(torchs) + 1e-5 * len(ours)  # of one parameter alone: a unit that rounding turns on or off decides


def errors(found: dict[str, Tensor], exact: dict[str, Tensor]) -> list[float]:
    """Relative to the length of the gradient, for every parameter; absolute where that is zero."""
    return [float((found[name] - exact[name]).norm() / (exact[name].norm() or 1.0)) for name in exact]


def test_a_network_that_trains_its_batch_normalization_is_left_alone() -> None:
    embedder = build_network("glyphnet", weights="none").train()
    assert not embedder.freeze_batchnorm
    embedder(torch.randn(4, 1, 32, 32))
    assert not is_fused(embedder)


def test_steps_of_the_optimizer_show_in_the_next_pass() -> None:
    embedder = with_statistics("glyphnet", "stages.0")
    with torch.no_grad():
        activations = embedder.trunk(torch.randn(4, 1, 32, 32))
    before = embedder.from_activations(activations)
    with torch.no_grad():
        for parameter in embedder.backbone.parameters():
            parameter.mul_(1.1)
    after, plain = embedder.from_activations(activations), one_by_one(embedder).from_activations(activations)
    assert not torch.allclose(before, after, atol=1e-4)
    torch.testing.assert_close(after, plain, rtol=1e-4, atol=1e-5)


def test_a_network_with_dropout_is_fused_and_draws_what_its_modules_draw() -> None:
    embedder = with_statistics("glyphnet", None)
    embedder.backbone.stages.append(nn.Dropout(0.5))  # type: ignore[operator]
    embedder.train()
    images, found = torch.randn(4, 1, 32, 32, generator=torch.Generator().manual_seed(1)), []
    for other in (embedder, one_by_one(embedder)):
        torch.manual_seed(0)
        found.append(other(images))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    assert is_fused(embedder)
    assert all(module.training for module in embedder.backbone.modules() if not isinstance(module, nn.BatchNorm2d))


def test_a_copy_or_pickle_of_a_trained_embedder_is_as_small_as_that_of_a_new_one() -> None:
    embedder = with_statistics("glyphnet", "stages.0")
    new = len(pickle.dumps(embedder))
    activations = embedder.trunk(torch.randn(4, 1, 32, 32))
    expected = gradients(embedder, activations, torch.ones(4, embedder.dim))
    assert is_fused(embedder)
    embedder.zero_grad()
    assert len(pickle.dumps(embedder)) < new + 10_000
    found = gradients(pickle.loads(pickle.dumps(embedder)), activations, torch.ones(4, embedder.dim))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(("size", "kernel", "stride", "padding"), [(9, 5, 1, 2), (14, 6, 2, 2), (8, 7, 2, 0), (5, 5, 3, 4)])
@pytest.mark.parametrize("n_images", [1, 16, 37])
def test_the_gradient_of_a_depthwise_kernel_is_torchs(size: int, kernel: int, stride: int, padding: int, n_images: int) -> None:
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(n_images, 24, size, size, generator=generator, dtype=torch.float64)
    weight = torch.randn(24, 1, kernel, kernel, generator=generator, dtype=torch.float64, requires_grad=True)
    output = conv2d(maps, weight, stride=stride, padding=padding, groups=24)
    gradient = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    output.backward(gradient)
    assert weight.grad is not None
    found, n_before = [], torch.get_num_threads()
    for n_threads in (1, 3):
        torch.set_num_threads(n_threads)
        found.append(
            depthwise_weight_gradient(maps.float(), gradient.float(), weight.shape, (stride, stride), (padding, padding))
        )
    torch.set_num_threads(n_before)
    assert torch.equal(*found)
    assert (found[0] - weight.grad).abs().max() <= 1e-5 * weight.grad.abs().max()


def noise(embedder: Network, n: int = 3, *, more: int = 0) -> Tensor:
    form, generator = embedder.preprocessing, torch.Generator().manual_seed(1)
    return torch.randn(n, form.channels, form.crop + more, form.crop + more, generator=generator)


def n_normalizations(embedder: Network, images: Tensor) -> int:
    """How often torch's batch normalization is called."""
    with torch.inference_mode(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        embedder.features(images)
    return sum(event.count for event in profile.key_averages() if event.key == "aten::batch_norm")


@pytest.mark.parametrize("name", ["glyphnet", "tf_efficientnet_lite0", "resnet18", "mobilenetv3_small_050", "efficientnet_b0"])
def test_for_inference_features_are_the_same_without_batch_normalization(name: str) -> None:
    plain = with_statistics(name, None, None if name == "glyphnet" else 96).eval()
    embedder, images = plain.for_inference(), noise(plain)
    with torch.inference_mode():
        expected, found = plain.features(images), embedder.features(images)
    assert (found - expected).abs().max() <= 2e-4 * expected.abs().max()
    assert n_normalizations(plain, images) > 0
    assert n_normalizations(embedder, images) == 0


def test_images_of_another_size_are_right_too() -> None:
    plain = with_statistics("tf_efficientnet_lite0", None, 96).eval()
    images = noise(plain, more=9)
    with torch.inference_mode():
        torch.testing.assert_close(plain.for_inference().features(images), plain.features(images), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("place", ["conv_stem", "bn1", "blocks.1", "blocks.4", "all"])
def test_a_frozen_part_is_fused_up_to_its_end(place: str) -> None:
    plain = with_statistics("tf_efficientnet_lite0", place, 96).eval()
    embedder, images = plain.for_inference(), noise(plain)
    with torch.inference_mode():
        expected, found = plain.trunk(images), embedder.trunk(images)
        assert (found - expected).abs().max() <= 2e-4 * expected.abs().max()
        torch.testing.assert_close(embedder.from_activations(found), plain(images), rtol=1e-4, atol=1e-5)


def test_float64_and_autocast_are_as_the_modules_do_it() -> None:
    plain = with_statistics("tf_efficientnet_lite0", None, 64).eval()
    embedder, images = plain.for_inference(), noise(plain, n=1)
    with torch.inference_mode():
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(embedder.features(images), plain.features(images))
        images = images.double()
        torch.testing.assert_close(embedder.double().features(images), plain.double().features(images))


def test_training_and_evaluation_take_turns() -> None:
    embedder = with_statistics("glyphnet", "stages.0")
    images = noise(embedder)
    with torch.no_grad():
        before = embedder.eval().for_inference()(images)
        for parameter in embedder.backbone.stages[2].parameters():  # type: ignore[index]
            parameter.mul_(1.1)
    embedder.train()(images).sum().backward()
    assert all(parameter.grad is not None for parameter in embedder.backbone.stages[2].parameters())  # type: ignore[index]
    with torch.no_grad():
        after, plain = embedder.eval().for_inference()(images), embedder(images)
    assert not torch.allclose(before, after, atol=1e-4)
    torch.testing.assert_close(after, plain, rtol=1e-4, atol=1e-5)


class Awkward(nn.Module):
    """Takes the output of a convolution twice, and changes that of batch normalization in place before its activation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.second, self.other_norm, self.activation = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)

    def forward_features(self, images: Tensor) -> Tensor:
        maps = self.first(images)
        added = self.norm(maps) + maps
        sums = self.other_norm(self.second(added))
        sums += added
        output: Tensor = self.activation(sums)
        return output


def test_a_network_that_cannot_be_fused_is_left_alone() -> None:
    torch.manual_seed(0)
    awkward = Awkward().eval()
    with torch.no_grad():
        awkward.norm.running_mean.fill_(0.5)  # type: ignore[union-attr]
    images = torch.randn(2, 1, 8, 8)
    with torch.inference_mode():
        torch.testing.assert_close(fused(awkward, images).forward_features(images), awkward.forward_features(images))
