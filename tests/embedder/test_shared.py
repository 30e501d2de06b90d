"""Models to share: the network that it was, in a folder or on the hub, for facetric, timm and Sentence Transformers."""

from __future__ import annotations

import json
import pickle
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import facetric
from embedder.hub_server import TOKEN, Hub, closed_port, reach, running_hub
from facetric.cli.main import app
from facetric.embedder import Embedder, Network, WeightsError, build_network
from facetric.embedder.onnx_export import sample_images
from facetric.runs import open_run
from photos.photo_files import write_photos
from processes import command, start, wait, wait_for

REPO = "owner/birds"


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def shared(evaluated_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run, written by the command."""
    folder = tmp_path_factory.mktemp("shared") / "birds"
    result = invoke("export", evaluated_run, folder, "--format", "hub")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(f"{folder}: glyphnet, 16 dimensions, ")
    return folder


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as hub:
        yield hub


@pytest.fixture
def reached(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def change(endpoint: str = hub.endpoint, **options: Any) -> None:
        reach(monkeypatch, endpoint, tmp_path / "cache", **options)

    change(token=TOKEN)
    return change


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def copied(shared: Path, place: Path) -> Path:
    return Path(shutil.copytree(shared, place / "copy"))


def test_a_shared_folder_is_the_model_of_the_run(shared: Path, evaluated_run: Path) -> None:
    model, other, images = facetric.load(evaluated_run), facetric.load(shared), sample_images(5)
    np.testing.assert_array_equal(other.encode(images), model.encode(images))
    assert other.fingerprint == model.fingerprint
    assert other.pair_model.as_dict() == model.pair_model.as_dict()
    assert (model.fitted_to, other.fitted_to) == ("6 test classes of first", "6 test classes")
    assert (other.name, other.run) == ("birds", str(shared))
    assert pickle.loads(pickle.dumps(other)).fingerprint == model.fingerprint


def test_its_weights_stand_for_the_whole_folder(shared: Path) -> None:
    assert facetric.load(shared / "model.safetensors").fingerprint == facetric.load(shared).fingerprint


def test_nothing_of_anybodys_photos_is_in_it(shared: Path, evaluated_run: Path) -> None:
    manifest = open_run(evaluated_run).manifest
    private = {*manifest.class_names, *manifest.images, *(Path(name).name for name in manifest.images), *manifest.contents}
    private |= {"secret", "pictures", "manifest.json", str(evaluated_run), str(evaluated_run.parent), evaluated_run.name}
    assert {"class00", "class00/0.png", "0.png", "first"} <= private
    for file, content in files_of(shared).items():
        assert not [name for name in private if name.encode() in content or name in file]


def test_its_card_has_the_scores_with_what_there_is_without_training(shared: Path, evaluated_run: Path) -> None:
    card, report = (shared / "README.md").read_text(), open_run(evaluated_run).evaluation()
    assert f"{100 * report.recall_at_k[1]:.2f}" in card
    assert [line.split("|")[1].strip() for line in card.splitlines() if line.startswith("| ")][1:] == [
        *report.baselines,
        "this model",
    ]
    assert f"24 images of 6 classes (fingerprint {report.source['classes']})" in card
    assert f"; fingerprint {open_run(evaluated_run).manifest.fingerprint[:12]}." in card
    assert 'facetric.load("PATH OF THIS FOLDER")' in card


def test_a_model_without_scores_says_so(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent)
    result = invoke("export", run.name, tmp_path / "model", "--format", "hub")
    assert result.exit_code == 0
    assert "its classes have not taught yet which photos belong together: run `facetric evaluate" in result.stderr
    card = (tmp_path / "model" / "README.md").read_text()
    assert "It was not evaluated." in card
    assert "(train)" in card
    assert facetric.load(tmp_path / "model").pair_model is None


TIMM = pytest.mark.parametrize(
    ("name", "options"),
    [
        ("test_resnet", {"dim": 5}),
        ("test_vit", {"image_size": 96, "normalize_features": True}),
        ("test_convnext", {"dim": None, "fit": "crop"}),
        ("test_efficientnet", {"dim": 7, "normalize": False, "image_size": 80, "size": 90}),
    ],
)


def saved(folder: Path, name: str, options: dict[str, Any]) -> tuple[Embedder, list[Image.Image]]:
    """A model of timm in a folder, and square images."""
    model = Embedder(build_network(name, weights="none", **options).eval())
    model.save(folder)
    return model, [image.crop((0, 0, 160, 160)) for image in sample_images(3)]


@TIMM
def test_timm_builds_the_backbone_and_feeds_it_as_we_do(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    model, images = saved(tmp_path / "model", name, options)
    backbone = timm.create_model(f"local-dir:{tmp_path / 'model'}", pretrained=True).eval()
    transform = timm.data.create_transform(**timm.data.resolve_data_config({}, model=backbone))
    inputs = torch.stack([transform(image) for image in images])
    assert isinstance(model.network, Network)
    with torch.no_grad():
        torch.testing.assert_close(backbone(inputs), model.network.features(inputs), atol=1e-5, rtol=1e-5)
        np.testing.assert_allclose(model.network(inputs).numpy(), model.encode(images), atol=1e-5)


@TIMM
def test_sentence_transformers_gives_the_same_vectors(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    model, images = saved(tmp_path / "model", name, options)
    found = library.SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(images, show_progress_bar=False)
    np.testing.assert_allclose(found, model.encode(images), atol=1e-5)


def test_what_the_other_libraries_cannot_do_is_not_offered_to_them(shared: Path, tmp_path: Path) -> None:
    assert not (shared / "modules.json").exists()
    assert "architecture" not in json.loads((shared / "config.json").read_text())  # glyphnet is not timm's
    Embedder(build_network("test_resnet", weights="none", pooling="gem").eval()).save(tmp_path / "gem")
    assert not (tmp_path / "gem" / "modules.json").exists()


def test_what_is_there_is_replaced_when_asked_and_only_if_it_is_a_model(shared: Path, tmp_path: Path) -> None:
    folder = copied(shared, tmp_path)
    model = Embedder(build_network("test_resnet", weights="none", dim=None).eval())
    with pytest.raises(ValueError, match="exists: choose another name, or pass overwrite=True"):
        model.save(folder)
    model.save(folder, overwrite=True)
    assert facetric.load(folder).fingerprint == model.fingerprint
    assert not (folder / "head" / "model.safetensors").exists()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").write_bytes(b"mine")
    with pytest.raises(ValueError, match="holds other files: choose a new folder"):
        model.save(tmp_path / "photos", overwrite=True)
    with pytest.raises(ValueError, match=r"saved as \.safetensors, or as a folder, without an ending; got .*birds\.pt: name it"):
        model.save(tmp_path / "birds.pt")


@pytest.mark.parametrize("file", ["model.safetensors", "head/model.safetensors", "config.json"])
@pytest.mark.parametrize("damage", ["cut", "gone", "flipped", "noise"])
def test_a_damaged_folder_is_one_line(shared: Path, tmp_path: Path, file: str, damage: str) -> None:
    place = copied(shared, tmp_path) / file
    content = bytearray(place.read_bytes())
    content[-40] ^= 1
    changed = {"cut": content[: len(content) // 2], "flipped": content, "noise": bytes(range(256)) * 9}
    if damage == "gone":
        place.unlink()
    else:
        place.write_bytes(changed[damage])
    with pytest.raises(ValueError, match=r"copy") as caught:
        facetric.load(tmp_path / "copy")
    assert "\n" not in str(caught.value)
    result = invoke("embed", tmp_path, "--model", tmp_path / "copy", "--output", tmp_path / "vectors.npz")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_weights_that_were_changed_are_not_taken_for_the_model(shared: Path, tmp_path: Path) -> None:
    weights = copied(shared, tmp_path) / "head" / "model.safetensors"
    tensors = load_file(weights)
    tensors["linear.bias"][0] += 1
    save_file(tensors, weights)
    with pytest.raises(WeightsError, match="copy is damaged, its checksum is wrong"):
        facetric.load(tmp_path / "copy")


def test_a_folder_of_another_program_is_refused_with_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "resnet18", "pretrained_cfg": {}}))
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(print))
    with pytest.raises(WeightsError, match="is not a model that facetric saved: a model of timm is hf-hub:OWNER/NAME"):
        facetric.load(tmp_path)
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(WeightsError, match=r"is damaged, its config\.json cannot be used"):
        facetric.load(tmp_path)


def test_a_model_that_was_pushed_comes_back_as_it_was_and_works_offline(
    hub: Hub, reached: Callable[..., None], evaluated_run: Path, tmp_path: Path
) -> None:
    result = invoke("export", evaluated_run, f"hf://{REPO}", "--format", "hub")
    assert result.exit_code == 0, result.stderr
    commit = hub.repositories[REPO].refs["main"]
    assert result.stdout.startswith(f"hf://{REPO}@{commit}: glyphnet, 16 dimensions, ")
    assert hub.repositories[REPO].access == "private"
    files = hub.repositories[REPO].commits[commit]
    assert b'facetric.load("hf://owner/birds")' in files["README.md"]
    recorded = json.loads(files["config.json"])["facetric"]["files"]
    assert set(hub.uploaded) == {recorded[name] for name in ("model.safetensors", "head/model.safetensors")}
    model, images = facetric.load(evaluated_run), sample_images(5)
    for address in (f"hf://{REPO}", f"hf://{REPO}@{commit}"):
        other = facetric.load(address)
        np.testing.assert_allclose(other.encode(images), model.encode(images), atol=1e-6)
        assert (other.fingerprint, other.name.partition("@")[0], other.run) == (model.fingerprint, "birds", address)
    reached(closed_port(), is_offline=True)
    assert facetric.load(f"hf://{REPO}").fingerprint == model.fingerprint


def test_a_saved_folder_is_pushed_with_its_card(hub: Hub, reached: Callable[..., None], shared: Path) -> None:
    address = facetric.load(shared).push_to_hub(REPO, token=TOKEN, private=False)
    assert hub.repositories[REPO].access == "open"
    files = hub.repositories[REPO].commits[address.partition("@")[2]]
    card = (shared / "README.md").read_bytes().replace(b"PATH OF THIS FOLDER", b"hf://owner/birds")
    assert files["README.md"] == card
    again = facetric.load(shared).push_to_hub(REPO, private=False)
    assert facetric.load(again).fingerprint == facetric.load(address).fingerprint


def test_an_index_remembers_a_model_of_the_hub(hub: Hub, reached: Callable[..., None], shared: Path, tmp_path: Path) -> None:
    facetric.load(shared).push_to_hub(REPO)
    (tmp_path / "photos").mkdir()
    for number, image in enumerate(sample_images(3)):
        image.save(tmp_path / "photos" / f"{number}.png")
    made = invoke("index", "add", tmp_path / "index", tmp_path / "photos", "--model", f"hf://{REPO}")
    assert made.exit_code == 0, made.stderr
    found = invoke("search", tmp_path / "index", tmp_path / "photos" / "0.png", "--top", 1)
    assert found.exit_code == 0, found.stderr
    assert "1.000" in found.stdout


@pytest.mark.parametrize(
    ("repo", "token", "message"),
    [
        (REPO, "", "the hub has to know who you are to write owner/birds: log in with `hf auth login`, or set HF_TOKEN"),
        (REPO, "hf_another", "the hub gives no permission to write owner/birds (401): log in with `hf auth login`"),
        ("other/birds", TOKEN, "the hub gives no permission to write other/birds (403): log in with `hf auth login`"),
        ("owner/public", TOKEN, "owner/public is there already, and everyone may read it: choose another name, or allow"),
        ("birds/of/prey", TOKEN, "a model on the hub is OWNER/NAME; got 'birds/of/prey'"),
    ],
)
def test_what_cannot_be_pushed_is_one_line(
    hub: Hub, reached: Callable[..., None], shared: Path, repo: str, token: str, message: str
) -> None:
    hub.add("owner/public", {"README.md": b"mine"})
    reached(token=token)
    result = invoke("export", shared, f"hf://{repo}", "--format", "hub")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"facetric export: {message}"), result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_command_that_was_stopped_goes_on_with_the_download(hub: Hub, reached: Any, shared: Path, tmp_path: Path) -> None:
    facetric.load(shared).push_to_hub(REPO, private=False)
    write_photos(tmp_path / "photos", 2)
    words = ["embed", tmp_path / "photos", "--model", f"hf://{REPO}", "--output", tmp_path / "vectors.npz"]
    environment = hub.environment(tmp_path / "home")
    full = command(*words, environment=environment, file_size_limit=500_000)
    assert full.returncode == 2
    assert f"facetric embed: no space is left for model.safetensors of {REPO}@" in full.stderr.splitlines()[-1]
    assert not list((tmp_path / "home").rglob("*.incomplete"))
    hub.pause = 0.1
    first = start(*words, log=tmp_path / "log", environment=environment)
    wait_for(lambda: any(part.stat().st_size for part in (tmp_path / "home").rglob("*.incomplete")))
    first.send_signal(signal.SIGINT)
    assert wait(first) == 130
    assert (tmp_path / "log").read_text().splitlines()[-1] == "facetric embed: stopped; run it again to continue"
    hub.pause = 0
    second = command(*words, environment=environment)
    assert second.returncode == 0, second.stderr
    assert hub.asked("GET", "/storage/")[-2] not in (None, "bytes=0-")  # the rest of the backbone, then the head


def break_nothing(hub: Hub, reached: Callable[..., None]) -> None:
    pass


BROKEN: dict[str, tuple[str, Callable[[Hub, Callable[..., None]], object], str]] = {
    "no network": (REPO, lambda hub, reached: reached(closed_port()), "cannot reach the hub for owner/birds ("),
    "checksum": (REPO, lambda hub, reached: setattr(hub, "is_corrupt", True), "model.safetensors of owner/birds@"),
    "revision": (f"{REPO}@v2", break_nothing, "owner/birds has no revision v2, or no longer: "),
    "repository": ("owner/brids", break_nothing, "there is no owner/brids on the hub, or it is private: check the name"),
    "private": (REPO, lambda hub, reached: reached(), "there is no owner/birds on the hub, or it is private: "),
    "gated": ("owner/gated", lambda hub, reached: reached(), "owner/gated is for those who accepted its conditions: "),
    "forbidden": ("owner/forbidden", break_nothing, "the hub gives no permission to read owner/forbidden (403): "),
    "offline": (REPO, lambda hub, reached: reached(is_offline=True), "config.json of owner/birds is not in the cache, and HF_"),
    "foreign": ("owner/timm", break_nothing, "hf://owner/timm is not a model that facetric saved: a model of timm is hf-hub:"),
    "address": ("birds", break_nothing, "a model on the hub is hf://OWNER/NAME or hf://OWNER/NAME@REVISION; got 'hf://birds'"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_every_failure_is_one_line_of_the_command(
    hub: Hub, reached: Callable[..., None], shared: Path, tmp_path: Path, what: str
) -> None:
    facetric.load(shared).push_to_hub(REPO)
    hub.add("owner/gated", files_of(shared), access="gated")
    hub.add("owner/forbidden", files_of(shared), access="forbidden")
    hub.add("owner/timm", {"config.json": b'{"architecture": "resnet18"}'})
    repo, damage, message = BROKEN[what]
    damage(hub, reached)
    Image.new("RGB", (40, 40)).save(tmp_path / "photo.png")
    result = invoke("embed", tmp_path / "photo.png", "--model", f"hf://{repo}", "--output", tmp_path / "vectors.npz")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"facetric embed: {message}"), result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "vectors.npz").exists()
