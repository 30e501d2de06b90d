"""Each named network, from a file as it is published to vectors, activations, a step of training and onnxruntime.

The architecture is the real one, with random weights: the file is in the hub's cache under the names that timm publishes.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

import facetric
from embedder.hub_server import running_hub
from facetric.embedder import NETWORKS, Embedder, WeightsError, build_network, cached_activations, encode
from facetric.embedder.onnx_export import sample_images
from facetric.images import Files
from facetric.losses import build_loss

FAST = ("lite1", "dinov3-small")


@pytest.fixture(params=[pytest.param(name, marks=[] if name in FAST else pytest.mark.slow) for name in NETWORKS])
def name(request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a network whose weights are here: in the hub's cache, for those that no package has."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    row = NETWORKS[request.param]
    if row.package is None:
        assert not row.is_here
        torch.manual_seed(11)
        published = timm.create_model(row.timm, pretrained=False)  # with its classifier, and of the size that it was trained at
        repository = tmp_path / "hub" / f"models--{row.repository.replace('/', '--')}"
        snapshot = repository / "snapshots" / (row.revision or "0" * 40)
        snapshot.mkdir(parents=True)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text("0" * 40)
        save_file(published.state_dict(), snapshot / "model.safetensors")
    assert row.is_here
    return row.name


def test_a_named_network_goes_all_the_way(name: str, tmp_path: Path) -> None:
    row, images = NETWORKS[name], sample_images(6)
    model = facetric.load(name)
    assert (model.name, model.dim, model.preprocessing.crop, model.preprocessing.fit) == (name, row.dim, row.image_size, "crop")
    assert model.preprocessing.mean == tuple(timm.get_pretrained_cfg(row.timm).mean)
    vectors = model.encode(images)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    if row.is_projected:
        torch.manual_seed(11)
        whole = timm.create_model(row.timm, pretrained=False).eval()
        inputs = model.network.crop(np.stack([model.preprocessing.pixels(image) for image in images]))
        with torch.no_grad():
            expected = torch.nn.functional.normalize(whole(torch.from_numpy(inputs)), dim=1)
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
    again = pickle.loads(pickle.dumps(model))
    assert (again.name, again.fingerprint) == (name, model.fingerprint)

    about = model.export(tmp_path / "model.onnx")
    assert about.difference < 1e-5
    assert np.abs(facetric.load(tmp_path / "model.onnx").encode(images) - vectors).max() < 1e-5

    network = build_network(name, dim=4, fit="crop", freeze_through=row.freeze_through)
    kept = cached_activations(network, Files(images), n_views=1, center=True)
    np.testing.assert_allclose(encode(network, kept.take(range(6))), encode(network, Files(images)), atol=2e-3)  # float16
    before = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    optimizer = torch.optim.SGD((p for p in network.parameters() if p.requires_grad), lr=0.1)
    activations = torch.from_numpy(kept.inputs(np.arange(6), None, np.zeros((6, 1))))
    loss = build_loss("triplet", {"margin": 1.0})(network.from_activations(activations), torch.tensor([0, 0, 1, 1, 2, 2]))
    loss.backward()
    optimizer.step()
    moved = {key for key, tensor in network.state_dict().items() if not torch.equal(tensor, before[key])}
    frozen = {f"backbone.{key}" for key in network.trunk_state()}
    assert "head.weight" in moved
    assert any(key.startswith("backbone.") for key in moved)
    assert not moved & frozen

    features = encode(network, Files(images), what="features")
    started = network.with_head(features, [0, 0, 1, 1, 2, 2], kind="whitened").eval()
    Embedder(started).save(tmp_path / "trained.safetensors")
    loaded = facetric.load(tmp_path / "trained.safetensors")
    np.testing.assert_array_equal(encode(loaded.network, Files(images)), encode(started, Files(images)))


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """timm's smallest network with a normalization of its own, on a hub that can be reached, as files by name."""
    from huggingface_hub import constants

    torch.manual_seed(5)
    network = timm.create_model("test_resnet", pretrained=False)
    save_file(network.state_dict(), tmp_path / "model.safetensors")
    trained = {"input_size": [3, 128, 128], "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}
    config = json.dumps({"architecture": "test_resnet", "num_classes": 1000, "pretrained_cfg": trained})
    files = {"config.json": config.encode(), "model.safetensors": (tmp_path / "model.safetensors").read_bytes()}
    with running_hub() as hub:
        hub.add("owner/tiny", files)
        for kind in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.delenv(kind, raising=False)
            monkeypatch.delenv(kind.upper(), raising=False)
        monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}")
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        yield hub, files, network.eval()


def test_a_network_of_timm_on_the_hub_is_loaded_with_its_normalization(published, tmp_path: Path) -> None:
    _, files, network = published
    images = sample_images(3)
    model = facetric.load("hf-hub:owner/tiny")
    assert (model.name, model.preprocessing.crop, model.preprocessing.mean) == ("hf-hub:owner/tiny", 128, (0.1, 0.2, 0.3))
    inputs = torch.from_numpy(model.network.crop(np.stack([model.preprocessing.pixels(image) for image in images])))
    with torch.no_grad():
        expected = torch.nn.functional.normalize(network.forward_head(network.forward_features(inputs), pre_logits=True), dim=1)
    np.testing.assert_allclose(model.encode(images), expected, atol=1e-5)
    place = tmp_path / "files"
    place.mkdir()
    for file, content in files.items():
        (place / file).write_bytes(content)
    local = facetric.load(place / "model.safetensors")
    assert (local.fingerprint, local.name) == (model.fingerprint, "model.safetensors")
    assert pickle.loads(pickle.dumps(local)).fingerprint == model.fingerprint


@pytest.mark.parametrize(
    ("config", "line"),
    [
        (b"{}", "owner/tiny needs a config.json of timm, .* (it lacks 'architecture'): choose a model of timm"),
        (b'{"facetric": {}}', "owner/tiny is of a model that facetric saved: load hf://OWNER/NAME, or its folder"),
        (b"[1", "owner/tiny needs a config.json of timm"),
        (b'{"architecture": "x_net", "input_size": [3, 9, 9], "mean": [], "std": []}', "this version of timm does not have"),
    ],
)
def test_what_is_no_model_of_timm_is_one_line(published, config: bytes, line: str) -> None:
    hub, _, _ = published
    hub.add("owner/tiny", {"config.json": config})
    with pytest.raises(WeightsError, match=line.replace("(", r"\(").replace(")", r"\)")) as caught:
        facetric.load("hf-hub:owner/tiny")
    assert "\n" not in str(caught.value)
