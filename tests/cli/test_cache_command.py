"""`facetric cache`: what is listed, what is removed and what never is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from facetric.cli.main import app
from facetric.embedder import build_network
from facetric.embedder.activations import cached_activations
from facetric.images import Files, cache, find_caches
from facetric.images.sources import prepare

DAY = 86_400


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of the command."""
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    (tmp_path / "birds").mkdir()
    paths = [tmp_path / "birds" / f"{color}.png" for color in ("red", "green", "blue")]
    for path in paths:
        Image.new("RGB", (40, 40), path.stem).save(path)
    return paths


def command(*words: str, answer: str | None = None, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["cache", *words], input=answer)
    assert result.exit_code == status, result.output
    return result.stdout


def listed() -> dict[str, dict]:
    """The entries of the folder by their kind."""
    return {entry["kind"]: entry for entry in json.loads(command("list", "--json"))}


def state(kind: str = "prepared images") -> str:
    return listed()[kind]["state"]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_an_empty_or_missing_folder_is_fine(folder: Path) -> None:
    assert command("list") == f"0 caches, 0.0 MB, in {folder}\n"
    assert json.loads(command("list", "--json")) == []
    assert command("clean") == f"Nothing to remove in {folder}.\n"


def test_a_cache_is_listed_with_what_it_holds(images: list[Path], folder: Path) -> None:
    before = time.time()
    prepare(Files(images), size=24)
    (path,) = folder.glob("images-24-*.rows")
    entry = listed()["prepared images"]
    assert (entry["detail"], entry["n_rows"], entry["state"]) == ("24 × 24 pixels, stretched", 3, "current")
    assert (entry["path"], entry["n_bytes"]) == (str(path), path.stat().st_size)
    assert entry["made_by"].startswith("facetric ")
    assert before - 2 <= entry["last_used"] <= time.time() + 2
    line = next(line for line in command("list").splitlines() if "prepared images" in line)
    for word in ("24 × 24 pixels", " 3 ", "0.0 MB", "current"):
        assert word in line
    network = build_network("test_resnet", weights="none", freeze_through="layer1")
    cached_activations(network, Files(images).take([0, 2]), n_views=1)
    entry = listed()["activations"]
    assert (entry["detail"], entry["n_rows"], entry["state"]) == ("test_resnet through layer1, 1 view", 2, "current")


def test_caches_of_other_versions_are_told_and_cleaned(images: list[Path], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(Files(images), size=20)
    record = next(folder.glob("images-20-*.json"))
    record.write_text(record.read_text().replace(f'"pillow": "{version("pillow")}"', '"pillow": "1.0"'))
    assert state() == f"made with pillow 1.0, now {version('pillow')}"
    assert "Removed 1 of 1" in command("clean", "--yes")
    assert not list(folder.glob("images-20-*"))
    prepare(Files(images), size=20)
    assert state() == "current"
    monkeypatch.setitem(cache.FORMATS, "prepared images", 99)
    assert state() == f"made by facetric {version('facetric')}"
    prepare(Files(images), size=20)
    assert "Removed 1 of 1" in command("clean", "--yes")
    assert state() == "current"


def test_it_asks_first_and_no_removes_nothing(images: list[Path], folder: Path) -> None:
    prepare(Files(images), size=20)
    before = names(folder)
    assert "Remove 2 caches, 0.0 MB, in" in command("clean", "--all", answer="n\n")
    result = CliRunner().invoke(app, ["cache", "clean", "--all"], input="")
    assert result.exit_code == 1
    assert "no answer, so nothing was removed: pass --yes" in result.stderr
    assert names(folder) == before
    assert "Removed 2 of 2" in command("clean", "--all", answer="y\n")
    assert names(folder) == set()


def test_a_cache_that_was_not_used_for_long_is_cleaned_when_asked_and_use_renews_it(images: list[Path], folder: Path) -> None:
    prepare(Files(images), size=20)
    long_ago = time.time() - 40 * DAY
    for lock in folder.glob("*.lock"):
        os.utime(lock, (long_ago, long_ago))
    command("list")  # is no use
    assert command("clean").startswith("Nothing to remove")
    assert command("clean", "--older-than", "41").startswith("Nothing to remove")
    assert "Removed" not in command("clean", "--older-than", "39", answer="n\n")
    prepare(Files(images), size=20)
    assert command("clean", "--older-than", "39").startswith("Nothing to remove")
    for lock in folder.glob("*.lock"):
        os.utime(lock, (long_ago, long_ago))
    assert "Removed 2 of 2" in command("clean", "--older-than", "39", "--yes")
    assert names(folder) == set()


def test_caches_of_earlier_versions_are_cleaned_and_files_of_others_never(images: list[Path], folder: Path) -> None:
    prepare(Files(images), size=20)
    ours = names(folder)
    key = "0123456789abcdef"
    old = {f"birds-256-{key}.bytes", f"trunk-net.v1-{key}.f16", f"trunk-net.v1-{key}.part"}
    for name in old:
        (folder / name).write_bytes(b"facetric array file 2\n" + bytes(5000))
    others = {
        "notes.txt": b"mine",
        f"birds-{key}.txt": b"mine",
        f"photos-{key}.bytes": b"mine",
        f"photos-{key}.json": b"[1]",
        f"photos-{key}.rows": b"mine",
        f"download-{key}.part": b"mine",
        "short.json": b"{}",
    }
    for name, data in others.items():
        (folder / name).write_bytes(data)
    (folder / f"folder-{key}.json").mkdir()
    states = {Path(entry["path"]).name: entry["state"] for entry in json.loads(command("list", "--json"))}
    assert {name for name, state in states.items() if state == "of facetric 0.2"} == old
    assert len(states) == 5
    assert "Removed 3 of 3" in command("clean", "--yes")
    assert names(folder) == {*ours, *others, f"folder-{key}.json"}
    assert "Removed 2 of 2" in command("clean", "--all", "--yes")
    assert names(folder) == {*others, f"folder-{key}.json"}


HOLD = "import sys; from filelock import FileLock\nwith FileLock(sys.argv[1]): print('held', flush=True); sys.stdin.readline()"


def test_a_cache_that_is_being_built_is_left_alone(images: list[Path], folder: Path) -> None:
    prepare(Files(images), size=20)
    (path,) = folder.glob("images-20-*.rows")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path.with_suffix(".lock"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    assert state() == "being built"
    found = next(cache for cache in find_caches() if cache.state == "being built")
    assert not found.remove()
    assert "Removed 1 of 1" in command("clean", "--all", "--yes")  # the hashes
    assert path.is_file()
    holder.communicate("go\n")
    assert "Removed 1 of 1" in command("clean", "--all", "--yes")
    assert names(folder) == set()


def test_a_name_that_could_steer_the_terminal_is_escaped(images: list[Path], folder: Path) -> None:
    prepare(Files(images), size=20)
    record = next(folder.glob("images-20-*.json"))
    record.write_text(record.read_text().replace("20 \\u00d7 20 pixels", "\\u001b[2J\\n"))
    told = command("list")
    assert "\x1b" not in told
    assert r"\x1b[2J\n" in told


def test_wrong_usage_is_an_exit_status_of_two(images: list[Path]) -> None:
    prepare(Files(images), size=20)
    for words in (
        ("clean", "--all", "--older-than", "3"),
        ("clean", "--older-than", "-1"),
        ("clean", "--older-than", "soon"),
        ("lst",),
    ):
        command(*words, status=2)
