"""GeM in the place of the average: the power mean itself, wherever the network is used, and refused where it cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from facetric.embedder import Network, WeightsError, build_network, save_network
from facetric.embedder.activations import cached_activations
from facetric.embedder.checkpoint import load_network, tensors_hash
from facetric.embedder.network import GeM
from facetric.embedder.split import feature_maps
from facetric.images import Arrays
from facetric.runs.config_file import parse_config

PICTURES = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def lite0(**options) -> Network:
    return build_network("tf_efficientnet_lite0", dim=8, image_size=64, weights="packaged", **options).eval()


@pytest.fixture(scope="module")
def embedder() -> Network:
    return lite0(pooling="gem")


def power_mean(maps: np.ndarray) -> np.ndarray:
    m, n_channels, height, width = maps.shape
    pooled = np.zeros((m, n_channels))
    for i in range(m):
        for c in range(n_channels):
            cubes = [max(float(maps[i, c, y, x]), 1e-6) ** 3 for y in range(height) for x in range(width)]
            pooled[i, c] = (sum(cubes) / len(cubes)) ** (1 / 3)
    return pooled


def test_features_are_the_power_mean_of_the_last_maps(embedder: Network) -> None:
    with torch.no_grad():
        maps = feature_maps(embedder.backbone, PICTURES).numpy()
        features = embedder.features(PICTURES).numpy()
    np.testing.assert_allclose(features, power_mean(maps), rtol=1e-5, atol=1e-6)


def test_its_gradient_is_that_of_the_power_mean_and_finite_at_zero() -> None:
    maps = torch.rand(2, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + 0.1
    assert torch.autograd.gradcheck(GeM(flat=True), maps.requires_grad_())
    nothing = torch.zeros(1, 2, 3, 3, requires_grad=True)
    GeM(flat=True)(nothing).sum().backward()
    assert torch.isfinite(nothing.grad).all()


@pytest.mark.parametrize("name", ["resnet18", "convnext_atto", "mobilenetv3_small_100"])
def test_it_stands_where_the_network_has_its_average(name: str) -> None:
    """With and without a layer between pooling and features; a map that is the same everywhere is its own mean."""
    options = {"dim": 4, "image_size": 64, "weights": "none"}
    average, gem = (build_network(name, pooling=kind, **options).eval() for kind in ("average", "gem"))
    assert average.state_dict().keys() == gem.state_dict().keys()
    with torch.no_grad():
        maps = feature_maps(average.backbone, PICTURES).abs().mean(dim=(2, 3), keepdim=True).expand(-1, -1, 2, 2)
        torch.testing.assert_close(gem._pooled(maps), average._pooled(maps), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "glyphnet"])
def test_a_network_without_such_an_average_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} does not average .*: use its own pooling \(--set model.pooling=average\)"):
        build_network(name, weights="none", pooling="gem")


def test_an_unknown_pooling_is_refused_and_not_taken_for_the_average() -> None:
    with pytest.raises(ValueError, match=r"pooling must be one of average, gem; got 'max': .*--set model\.pooling=gem"):
        build_network("glyphnet", pooling="max")  # type: ignore[arg-type]


def test_inference_and_training_compute_the_same(embedder: Network) -> None:
    with torch.no_grad():
        expected = embedder(PICTURES)
        torch.testing.assert_close(embedder.for_inference()(PICTURES), expected, rtol=0, atol=1e-5)
    training = lite0(pooling="gem", freeze_through="blocks.4").train()  # the fused passes
    torch.testing.assert_close(training(PICTURES).detach(), expected, rtol=0, atol=1e-4)


def test_a_saved_embedder_keeps_its_pooling(embedder: Network, tmp_path: Path) -> None:
    save_network(embedder, tmp_path / "gem.safetensors")
    loaded = load_network(tmp_path / "gem.safetensors")
    assert loaded.pooling == "gem"
    with torch.no_grad():
        assert torch.equal(loaded(PICTURES), embedder(PICTURES))


def test_an_unknown_pooling_in_a_file_is_refused(embedder: Network, tmp_path: Path) -> None:
    path = tmp_path / "gem.safetensors"
    save_network(embedder, path)
    with safe_open(path, framework="pt") as file:
        spec = json.loads(file.metadata()["facetric"])
    tensors = load_file(path)
    del spec["sha256"]
    spec["pooling"] = "median"
    save_file(tensors, path, {"facetric": json.dumps({**spec, "sha256": tensors_hash(tensors, spec)})})
    with pytest.raises(WeightsError, match="pooling must be one of average, gem; got 'median'"):
        load_network(path)


def test_cached_features_of_one_pooling_are_not_those_of_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path))
    pictures = Arrays(np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3), dtype=np.uint8))
    networks = (lite0(pooling=kind, freeze_through="all") for kind in ("average", "gem"))
    average, gem = (cached_activations(network, pictures, n_views=0, center=True) for network in networks)
    assert len(list(tmp_path.glob("*.rows"))) == 2
    assert not np.allclose(average.values, gem.values)


def test_the_setting_is_one_of_two() -> None:
    data = {"name": "cub", "root": "birds"}
    assert parse_config({"data": data, "model": {"pooling": "gem"}}).model.pooling == "gem"
    with pytest.raises(ValueError, match=r"model\.pooling: Input should be 'average' or 'gem'; got 'max'"):
        parse_config({"data": data, "model": {"pooling": "max"}})
