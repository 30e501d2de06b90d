"""Networks for inference: convolutions that do batch normalization and activation too give what the network gives."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from facetric.embedder import Network, build_network, encode
from facetric.embedder.encode import inference, outputs_in_order
from facetric.embedder.fused import fused


def network(name: str, *, freeze_through: str | None = None) -> Network:
    """With statistics and weights of batch normalization that do something."""
    size = None if name == "glyphnet" else 96  # pixels
    embedder = build_network(name, weights="none", freeze_through=freeze_through, image_size=size).eval()
    generator = torch.Generator().manual_seed(0)
    for module in embedder.backbone.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            with torch.no_grad():
                for tensor in (module.running_mean, module.bias):
                    assert tensor is not None
                    tensor.copy_(0.2 * torch.randn(tensor.shape, generator=generator))
                for tensor in (module.running_var, module.weight):
                    assert tensor is not None
                    tensor.copy_(1 + 0.5 * torch.rand(tensor.shape, generator=generator))
    return embedder


def pictures(embedder: Network, n: int = 3, *, more: int = 0) -> Tensor:
    spec, generator = embedder.preprocessing, torch.Generator().manual_seed(1)
    return torch.randn(n, spec.channels, spec.crop + more, spec.crop + more, generator=generator)


@pytest.mark.parametrize("name", ["glyphnet", "tf_efficientnet_lite0", "resnet18", "mobilenetv3_small_050", "efficientnet_b0"])
def test_the_fused_network_gives_the_same_features_without_batch_normalization(name: str) -> None:
    embedder = network(name)
    faster = embedder.for_inference()
    assert faster.backbone is not embedder.backbone
    images = pictures(embedder)
    with torch.inference_mode():
        expected, found = embedder.features(images), faster.features(images)
    assert (found - expected).abs().max() <= 2e-4 * expected.abs().max()
    assert n_normalizations(embedder, images) > 0
    assert n_normalizations(faster, images) == 0


def n_normalizations(embedder: Network, images: Tensor) -> int:
    """How often torch's batch normalization is called."""
    with torch.inference_mode(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        embedder.features(images)
    return sum(event.count for event in profile.key_averages() if event.key == "aten::batch_norm")


def test_a_copy_made_in_inference_mode_is_fused_too() -> None:
    embedder = network("glyphnet")
    with torch.inference_mode():
        assert n_normalizations(embedder.for_inference(), pictures(embedder)) == 0


def test_images_of_another_size_are_right_too() -> None:
    embedder = network("tf_efficientnet_lite0")
    faster, images = embedder.for_inference(), pictures(embedder, more=9)
    with torch.inference_mode():
        torch.testing.assert_close(faster.features(images), embedder.features(images), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("place", ["conv_stem", "bn1", "blocks.1", "blocks.4", "all"])
def test_a_frozen_part_is_fused_up_to_its_end(place: str) -> None:
    embedder = network("tf_efficientnet_lite0", freeze_through=place)
    faster, images = embedder.for_inference(), pictures(embedder)
    with torch.inference_mode():
        expected, found = embedder.trunk(images), faster.trunk(images)
        assert (found - expected).abs().max() <= 2e-4 * expected.abs().max()
        torch.testing.assert_close(faster.from_activations(found), embedder(images), rtol=1e-4, atol=1e-5)


def test_the_copy_keeps_the_weights_of_its_time_and_the_mode_of_the_network_is_restored() -> None:
    embedder = network("glyphnet").train()
    images = pictures(embedder)
    with inference(embedder) as faster:
        assert not faster.training
        with torch.inference_mode():
            before = faster.features(images)
            with torch.no_grad():
                next(embedder.backbone.parameters()).mul_(2)
            assert torch.equal(faster.features(images), before)
    assert embedder.training
    assert faster.for_inference() is faster


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda embedder: pickle.loads(pickle.dumps(embedder))])
@pytest.mark.parametrize("name", ["glyphnet", "tf_efficientnet_lite0"])
def test_the_copy_for_inference_can_be_copied_and_pickled(name: str, copied: Callable[[Network], Network]) -> None:
    faster = network(name).for_inference()
    images = pictures(faster, n=1)
    with torch.inference_mode():
        assert torch.equal(copied(faster).features(images), faster.features(images))


def test_the_copy_for_inference_takes_float64_and_autocast_as_the_network_does() -> None:
    embedder = network("tf_efficientnet_lite0")
    faster, images = embedder.for_inference(), pictures(embedder, n=1)
    with torch.inference_mode():
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(faster.features(images), embedder.features(images))
        images = images.double()
        torch.testing.assert_close(faster.double().features(images), embedder.double().features(images))


def test_the_copy_for_inference_cannot_be_trained() -> None:
    faster = network("glyphnet").for_inference()
    with pytest.raises(ValueError, match="train the network that it was made from"):
        faster.train()


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


def test_vectors_do_not_depend_on_the_number_of_threads() -> None:
    embedder = network("glyphnet")
    images = np.random.default_rng(0).integers(0, 256, (50, 32, 32), dtype=np.uint8)
    found, n_threads = [], torch.get_num_threads()
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            found.append(encode(embedder, images))
            assert torch.get_num_threads() == n
    finally:
        torch.set_num_threads(n_threads)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_outputs_come_in_order_and_an_error_in_a_task_comes_through() -> None:
    embedder = network("glyphnet")

    def made(i: int) -> Tensor:
        if i == 7:
            raise ValueError("picture 7 is broken")
        return torch.full((1,), float(i))

    outputs = outputs_in_order(embedder, [partial(made, i) for i in range(7)], lambda batch: batch + 1)
    assert [float(output) for output in outputs] == [1, 2, 3, 4, 5, 6, 7]
    n_threads = torch.get_num_threads()
    with pytest.raises(ValueError, match="picture 7"):
        list(outputs_in_order(embedder, [partial(made, i) for i in range(9)], lambda batch: batch))
    assert torch.get_num_threads() == n_threads
