"""`facetric models`, and the names of networks wherever a command takes a model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import facetric
from facetric.cli.main import app
from facetric.embedder import NETWORKS
from facetric.embedder.onnx_export import sample_images
from facetric.photos import open_collection

runner = CliRunner()


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number, image in enumerate(sample_images(4)):
        image.save(folder / f"{number}.png")
    return folder


def invoke(*arguments: object, status: int = 0) -> str:
    done = runner.invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    assert done.exit_code == status, done.output
    return done.output


def test_all_networks_are_listed_with_what_one_wants_to_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    listed = invoke("models")
    lines = {words[0]: line for line in listed.splitlines() if not line.startswith(" ") and (words := line.split())}
    assert list(lines) == list(NETWORKS)
    for name, row in NETWORKS.items():
        assert f"{row.dim:,} dimensions" in lines[name]
        assert lines[name].endswith(f"{'here' if row.package else 'to be downloaded'}, {row.license}")
    assert "birds 79.5" in listed
    (one,) = json.loads(invoke("models", "clip", "--json"))
    assert (one["name"], one["is_here"], "images_per_second" in one) == ("clip", False, False)


def test_the_speed_is_measured_only_when_it_is_asked_for() -> None:
    (one,) = json.loads(invoke("models", "lite0", "--speed", "--json"))
    assert one["images_per_second"] > 0
    assert f"{'images/s':>8}" in invoke("models", "lite0", "--speed")


def test_an_unknown_name_is_a_usage_error_with_the_nearest(photos: Path, tmp_path: Path) -> None:
    line = "there is no network and no run folder dinov2-smal: did you mean dinov2-small?"
    assert line in invoke("models", "dinov2-smal", status=2)
    assert line in invoke("embed", photos, "-o", tmp_path / "v.npz", "--model", "dinov2-smal", status=2)


def test_an_index_knows_which_network_it_is_of(photos: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    invoke("index", "add", index, photos, "--model", "lite1")
    assert "model: lite1 (" in invoke("index", "status", index)
    assert "1.000" in invoke("search", index, photos / "1.png", "--top", "1")
    assert open_collection(index).model.fingerprint == facetric.load("lite1").fingerprint
    assert "vectors of another model" in invoke("index", "add", index, photos, "--model", "lite0", status=2)


def test_a_network_is_embedded_with_and_exported_by_its_name(photos: Path, tmp_path: Path) -> None:
    invoke("export", "lite1", tmp_path / "lite1.onnx")
    tables = []
    for model in ("lite1", tmp_path / "lite1.onnx"):
        output = tmp_path / f"{len(tables)}.npz"
        invoke("embed", photos, "-o", output, "--model", model)
        tables.append(np.load(output))
    np.testing.assert_allclose(tables[0]["vectors"], tables[1]["vectors"], atol=1e-5)


def test_a_name_is_a_network_even_where_a_folder_has_it(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lite1").symlink_to(run)
    assert facetric.load("lite1").name == "lite1"
    folder, by_path = facetric.load("./lite1"), facetric.load(Path("lite1"))
    assert folder.fingerprint == by_path.fingerprint == facetric.load(run).fingerprint != facetric.load("lite1").fingerprint


def test_a_run_is_built_with_a_name() -> None:
    by_name, by_timm = (facetric.build_network(name, dim=8) for name in ("lite1", "tf_efficientnet_lite1"))
    assert by_name.name == by_timm.name
    assert by_name.preprocessing == by_timm.preprocessing
