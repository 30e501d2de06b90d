"""Saved embedders: the same after loading, whole or refused, and never half-written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from facetric.embedder import Network, WeightsError, build_network, save_network
from facetric.embedder.checkpoint import load_network


@pytest.fixture
def embedder() -> Network:
    return build_network("glyphnet", dim=7, normalize=False, freeze_through="stages.0", seed=3)


@pytest.fixture
def path(embedder: Network, tmp_path: Path) -> Path:
    save_network(embedder, tmp_path / "embedder.safetensors")
    return tmp_path / "embedder.safetensors"


def metadata(path: Path) -> dict[str, str]:
    with safe_open(path, framework="pt") as file:
        return dict(file.metadata())


def test_a_loaded_embedder_is_the_saved_one(embedder: Network, path: Path) -> None:
    loaded = load_network(path)
    assert not loaded.training
    for name in ("name", "dim", "normalize", "freeze_through", "freeze_batchnorm", "preprocessing", "n_features"):
        assert getattr(loaded, name) == getattr(embedder, name)
    images = torch.randn(4, 1, 32, 32)
    assert torch.equal(loaded(images), embedder.eval()(images))
    frozen = {name for name, parameter in loaded.named_parameters() if not parameter.requires_grad}
    assert frozen == {name for name, parameter in embedder.named_parameters() if not parameter.requires_grad}


@pytest.mark.parametrize("name", ["tf_efficientnet_lite0", "googlenet", "test_convnext"])
def test_any_backbone_is_loaded_from_the_file_alone(name: str, tmp_path: Path) -> None:
    embedder = build_network(name, dim=3, weights="none", seed=5).eval()
    save_network(embedder, tmp_path / "embedder.safetensors")
    loaded = load_network(tmp_path / "embedder.safetensors")
    spec = embedder.preprocessing
    images = torch.randn(1, spec.channels, spec.crop, spec.crop)
    with torch.no_grad():
        assert torch.equal(loaded(images), embedder(images))


def test_the_file_is_plain_safetensors_with_its_description(path: Path) -> None:
    assert "head.weight" in load_file(path)
    spec = json.loads(metadata(path)["facetric"])
    assert (spec["backbone"], spec["dim"], spec["normalize"], spec["freeze_through"]) == ("glyphnet", 7, False, "stages.0")
    form = {"size": 32, "pad": 0, "crop": 32, "channels": 1, "mean": [0.5], "std": [0.5], "fit": "stretch"}
    assert spec["preprocessing"] == form


@pytest.mark.parametrize("where", [0.0, 0.0005, 0.01, 0.5, 0.999999])
def test_a_flipped_bit_anywhere_is_found(path: Path, where: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(where * len(content))] ^= 1
    path.write_bytes(content)
    with pytest.raises(WeightsError, match=r"embedder.safetensors"):
        load_network(path)


def test_a_changed_digit_anywhere_in_the_description_is_found(path: Path) -> None:
    content = path.read_bytes()
    start = content.index(b'{\\"format')
    end = content.index(b"sha256", start)
    places = [place for place in range(start, end) if content[place : place + 1].isdigit()]
    assert len(places) > 8  # format, dim, freeze_through, size, pad, crop, channels, mean, std
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1  # 32 pixels become 33, a mean of 0.5 becomes 0.4
        path.write_bytes(changed)
        with pytest.raises(WeightsError, match=r"checksum is wrong|was written by"):
            load_network(path)


@pytest.mark.parametrize("n_bytes", [0, 5, 1000, 100_000])
def test_a_truncated_file_is_refused(path: Path, n_bytes: int) -> None:
    path.write_bytes(path.read_bytes()[:n_bytes])
    with pytest.raises(WeightsError, match="is damaged or not a safetensors file") as caught:
        load_network(path)
    assert "\n" not in str(caught.value)


def test_someone_elses_file_is_refused_with_the_way_to_use_it(tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(WeightsError, match=r"not written by facetric.*weights=path"):
        load_network(tmp_path / "other.safetensors")


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"there is no network .*nowhere"):
        load_network(tmp_path / "nowhere")


def rewritten(path: Path, tensors: dict[str, torch.Tensor], **changes: object) -> None:
    """The file with other tensors or another description, and a checksum that fits."""
    from facetric.embedder.checkpoint import tensors_hash

    spec = {**json.loads(metadata(path)["facetric"]), **changes}
    del spec["sha256"]
    save_file(tensors, path, metadata={"facetric": json.dumps({**spec, "sha256": tensors_hash(tensors, spec)})})


def test_tensors_of_the_wrong_shape_are_refused_by_name(path: Path) -> None:
    rewritten(path, {**load_file(path), "head.weight": torch.zeros(2, 3)})
    with pytest.raises(WeightsError, match=r"size mismatch for head.weight: .*\[2, 3\].*\[7, 1024\]"):
        load_network(path)


def test_missing_and_surplus_tensors_are_refused_by_name(path: Path) -> None:
    tensors = load_file(path)
    bias = tensors.pop("head.bias")
    rewritten(path, tensors)
    with pytest.raises(WeightsError, match=r'Missing key\(s\) in state_dict: "head.bias"\.\): use the versions of timm'):
        load_network(path)
    rewritten(path, {**tensors, "head.bias": bias, "tail.bias": bias.clone()})
    with pytest.raises(WeightsError, match=r'Unexpected key\(s\) in state_dict: "tail.bias"'):
        load_network(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backbone": "resnet1800"}, r"cannot be built here \(a network must be one that"),
        ({"freeze_through": "nowhere"}, r"cannot be built here \(freeze_through must name a module"),
        ({"preprocessing": {}}, "cannot be built here"),
        (
            {"preprocessing": {"size": 32, "crop": 4, "channels": 1, "mean": [0.5], "std": [0.5]}},
            r"cannot be built here \(glyphnet cannot take images of 4",
        ),
        ({"format": 2}, r"was written by facetric 0\.2, this version reads those of 0\.3: train it again, or install"),
        ({"format": 4}, r"was written by another facetric \(format 4\)"),
    ],
)
def test_a_description_that_cannot_be_followed_is_refused(path: Path, changes: dict, message: str) -> None:
    rewritten(path, load_file(path), **changes)
    with pytest.raises(WeightsError, match=message):
        load_network(path)


def test_saving_replaces_the_file_at_once_and_leaves_no_litter(embedder: Network, path: Path, monkeypatch) -> None:
    before = path.read_bytes()
    with torch.no_grad():
        embedder.head.bias.add_(1)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            save_network(embedder, path)
    assert path.read_bytes() == before
    save_network(embedder, path)
    assert torch.equal(load_network(path).head.bias, embedder.head.bias)
    assert [file.name for file in path.parent.iterdir()] == ["embedder.safetensors"]


def test_saving_into_a_missing_folder_raises_and_the_same_embedder_gives_the_same_bytes(embedder: Network, path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        save_network(embedder, path.parent / "missing" / "embedder.safetensors")
    save_network(embedder, path.with_name("again.safetensors"))
    assert path.with_name("again.safetensors").read_bytes() == path.read_bytes()
