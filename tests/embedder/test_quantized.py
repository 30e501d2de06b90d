"""Networks in 8-bit integers: what they give, where they are refused, and that their vectors never pass for others."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import interpolate

from facetric.embedder import Network, build_network, embed
from facetric.embedder.quantized import Grid, quantized

_CAPABILITIES = torch.cpu.get_capabilities()
pytestmark = pytest.mark.skipif(
    not (_CAPABILITIES.get("avx512_vnni") or _CAPABILITIES.get("avx_vnni")), reason="the processor has no VNNI instructions"
)


@pytest.fixture(scope="module")
def packaged() -> Network:
    return build_network("tf_efficientnet_lite0", weights="packaged").eval()


def pictures(n: int = 3, size: int = 224) -> Tensor:
    """Smooth ones."""
    noise = torch.randn(n, 3, 28, 28, generator=torch.Generator().manual_seed(1))
    return interpolate(noise, size=(size, size), mode="bicubic")


def test_vectors_point_the_same_way_and_most_of_the_network_is_in_bytes(packaged: Network) -> None:
    faster, images = packaged.for_inference("int8"), pictures()
    with torch.inference_mode(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        found = faster.features(images)
    with torch.inference_mode():
        expected = packaged.features(images)
    assert found.dtype == torch.float32
    assert not torch.equal(found, expected)
    assert torch.cosine_similarity(found, expected).min() > 0.98
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["onednn::qconv2d_pointwise"] == 48
    assert counts["mkldnn::_convolution_pointwise"] == 1  # the first, which takes the pictures
    assert "aten::batch_norm" not in counts


class Small(nn.Module):
    """A depthwise convolution with padding between two of 1 × 1, as in MobileNetV2; `shortcut` takes ReLU6's output twice."""

    def __init__(self, *, shortcut: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.shortcut = shortcut
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU6())
        self.widened = nn.Sequential(nn.Conv2d(8, 24, 1), nn.BatchNorm2d(24), nn.ReLU6())
        self.depthwise = nn.Sequential(nn.Conv2d(24, 24, 3, padding=1, groups=24), nn.BatchNorm2d(24), nn.ReLU6())
        self.narrowed = nn.Sequential(nn.Conv2d(24, 8, 1), nn.BatchNorm2d(8))
        self.last = nn.Sequential(nn.Conv2d(8, 16, 1), nn.BatchNorm2d(16), nn.ReLU6())

    def forward_features(self, images: Tensor) -> Tensor:
        first = self.first(images)
        maps = self.narrowed(self.depthwise(self.widened(first)))
        output: Tensor = self.last(maps + first if self.shortcut else maps)
        return output


def small(*, shortcut: bool = False) -> tuple[Small, Tensor]:
    """With the statistics of its own maps, and the images that gave them."""
    network, images = Small(shortcut=shortcut), torch.randn(8, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # the statistics of all batches seen
    with torch.no_grad():
        network.train().forward_features(images)
    return network.eval(), images


def test_each_convolution_gives_what_float64_gives_for_the_numbers_that_its_bytes_mean() -> None:
    network, images = small()
    faster = quantized(network, images)
    with torch.no_grad():
        maps = faster.first(images)  # type: ignore[operator]
        for name in ("widened", "depthwise", "narrowed", "last"):
            convolution = getattr(faster, name)[0].forward
            taken = maps if maps.dtype == torch.uint8 else convolution.taken.rounded(maps)
            expected = copy.deepcopy(getattr(network, name)).double()(convolution.taken.values(taken).double())
            maps = getattr(faster, name)(maps)
            found = maps if convolution.given is None else convolution.given.values(maps)
            assert (found - expected).square().mean().sqrt() < 0.02 * expected.square().mean().sqrt()


def test_a_grid_rounds_to_the_nearest_of_its_steps_and_ends_at_its_ends() -> None:
    grid = Grid(torch.tensor([0.5, 0.1]), torch.tensor([0.0, 100.0]))
    maps = torch.tensor([[-1.0, 0.0, 0.2, 0.3, 10.0, 200.0], [-20.0, -10.0, 0.0, 0.26, 1.0, 99.0]]).reshape(1, 2, 2, 3)
    expected = [[0, 0, 0, 1, 20, 255], [0, 0, 100, 103, 110, 255]]
    rounded = grid.rounded(maps)
    assert rounded.flatten(2)[0].tolist() == expected
    assert torch.allclose(grid.values(rounded)[0, 1].flatten()[2:5], torch.tensor([0.0, 0.3, 1.0]))


def test_a_network_that_takes_bytes_for_numbers_is_refused() -> None:
    network, images = small(shortcut=True)
    with pytest.raises(ValueError, match=r"precision int8 does not suit this network, its maps have a cosine of -?0\.\d\d"):
        quantized(network, images)


def test_the_end_of_a_frozen_part_is_in_float32() -> None:
    network, images = small()
    with torch.no_grad():
        assert quantized(network, images).first(images).dtype == torch.uint8  # type: ignore[operator]
        apart = quantized(network, images, apart="first")
        assert apart.first(images).dtype == torch.float32  # type: ignore[operator]
        assert apart.widened(apart.first(images)).dtype == torch.uint8  # type: ignore[operator]


@pytest.mark.parametrize("place", ["bn1", "blocks.1", "blocks.3.0.conv_dw", "all"])
def test_a_frozen_network_is_cut_where_it_was(packaged: Network, place: str) -> None:
    embedder = build_network("tf_efficientnet_lite0", weights="packaged", freeze_through=place).eval()
    faster, images = embedder.for_inference("int8"), pictures(1)
    with torch.inference_mode():
        activations = faster.trunk(images)
        assert activations.dtype == torch.float32
        assert torch.equal(faster.from_activations(activations), faster(images))


def test_pictures_of_another_size_are_taken_too(packaged: Network) -> None:
    faster, images = packaged.for_inference("int8"), pictures(2, size=240)
    with torch.inference_mode():
        found, expected = faster.features(images), packaged.features(images)
    assert torch.cosine_similarity(found, expected).min() > 0.98


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda embedder: pickle.loads(pickle.dumps(embedder))])
def test_the_copy_can_be_copied_and_pickled(packaged: Network, copied: Callable[[Network], Network]) -> None:
    faster, images = packaged.for_inference("int8"), pictures(1)
    with torch.inference_mode():
        assert torch.equal(copied(faster).features(images), faster.features(images))


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224", "glyphnet"])
def test_other_networks_are_refused(name: str) -> None:
    embedder = build_network(name, weights="none")
    with pytest.raises(ValueError, match=r"precision int8 needs a network with batch normalization and ReLU6.*--precision 32"):
        embedder.for_inference("int8")


def test_a_processor_without_the_instructions_is_refused(packaged: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    with pytest.raises(ValueError, match="precision int8 needs a CPU with VNNI instructions, this processor has none"):
        packaged.for_inference("int8")


def test_vectors_are_the_same_each_time_and_the_record_says_how_they_were_made(packaged: Network, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 224, 224, 3), dtype=np.uint8)
    paths = []
    for i, image in enumerate(images):
        paths.append(tmp_path / f"{i}.png")
        Image.fromarray(image).save(paths[-1])
    full, found, again = (embed(packaged, paths, folder=tmp_path / "b", precision=p) for p in ("32", "int8", "int8"))
    assert found.source["precision"] == "int8"
    assert np.array_equal(found.vectors, again.vectors)
    assert not np.array_equal(found.vectors, full.vectors)
