"""`facetric cache`: what is listed, what is removed and what never is, and damage that is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from facetric.cli.main import app
from facetric.embedder import build_network
from facetric.embedder.activations import build_trunk_cache
from facetric.images import array_file, array_format, cache_key, prepare

DAY = 86_400


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of the command."""
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
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
    """The entries of the folder by their suffix."""
    return {Path(entry["path"]).suffix: entry for entry in json.loads(command("list", "--json"))}


def state(suffix: str = ".bytes") -> str:
    return listed()[suffix]["state"]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_an_empty_or_missing_folder_is_fine(folder: Path) -> None:
    assert command("list") == f"0 files, 0.0 MB, in {folder}\n"
    assert json.loads(command("list", "--json")) == []
    assert command("clean") == f"Nothing to remove in {folder}.\n"
    assert command("verify") == f"0 files, 0.0 MB, in {folder}: all intact.\n"


def test_a_cache_is_listed_with_what_it_was_made_from(pictures: list[Path]) -> None:
    before = time.time()
    path = prepare(pictures, size=24, name="my birds").path
    entry = listed()[".bytes"]
    assert (entry["kind"], entry["name"], entry["n_images"]) == ("prepared images", "my birds", 3)
    assert entry["n_bytes"] == path.stat().st_size
    assert entry["folder"] == str(pictures[0].parent)
    assert entry["state"] == "current"
    assert entry["made_by"].startswith("facetric ")
    assert before - 2 <= entry["last_used"] <= time.time() + 2
    line = next(line for line in command("list").splitlines() if "my birds" in line)
    for word in ("prepared images", "24 × 24 pixels", " 3 ", "0.0 MB", "current", str(pictures[0].parent)):
        assert word in line


def test_activations_are_listed_and_go_out_of_date_with_the_images_of_their_prepared_cache(pictures: list[Path]) -> None:
    embedder = build_network("test_resnet", weights="none", freeze_through="layer1")
    prepared = prepare(pictures, name="birds")
    build_trunk_cache(embedder, prepared.take([0, 2]), n_views=1)
    entry = listed()[".f16"]
    assert (entry["kind"], entry["name"], entry["n_images"], entry["state"]) == ("activations", "birds", 2, "current")
    assert entry["detail"] == "test_resnet through layer1, 1 view"
    prepared.path.unlink()
    pictures[1].touch()
    assert state(".f16") == "images changed"


def test_activations_of_pictures_in_memory_stay_current(folder: Path) -> None:
    embedder = build_network("glyphnet", dim=8, freeze_through="stages.1", seed=1)
    build_trunk_cache(embedder, np.zeros((2, 40, 40), dtype=np.uint8), n_views=1)
    assert state(".f16") == "current"
    assert "in memory" in command("list")
    command("clean", "--yes")
    assert any(name.endswith(".f16") for name in names(folder))


def test_caches_of_changed_or_missing_images_and_of_other_versions_are_told_and_cleaned(
    pictures: list[Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(pictures, size=20)
    assert state() == "current"
    Image.new("RGB", (40, 40), "black").save(pictures[0])
    assert state() == "images changed"
    pictures[1].unlink()
    assert state() == "1 of 3 images gone"
    assert "Removed 1 of 1" in command("clean", "--yes")
    assert names(folder) == set()

    prepare(pictures[:1], size=20)
    made_by = cache_key.PREPARATION
    monkeypatch.setattr(cache_key, "PREPARATION", 99)
    assert state() == f"made by preparation {made_by}, now 99"
    prepare(pictures[:1], size=20)
    assert "Removed 1 of 1" in command("clean", "--yes")
    assert state() == "current"


def test_it_asks_first_and_no_removes_nothing(pictures: list[Path], folder: Path) -> None:
    prepare(pictures, size=20)
    pictures[0].unlink()
    before = names(folder)
    assert "Remove 1 file, 0.0 MB, in" in command("clean", answer="n\n")
    result = CliRunner().invoke(app, ["cache", "clean"], input="")
    assert result.exit_code == 1
    assert "no answer, so nothing was removed: pass --yes" in result.stderr
    assert names(folder) == before
    assert "Removed 1 of 1" in command("clean", answer="y\n")
    assert names(folder) == set()


def test_a_cache_that_was_not_used_for_long_is_cleaned_when_asked_and_use_renews_it(pictures: list[Path], folder: Path) -> None:
    lock = prepare(pictures, size=20).path.with_suffix(".lock")
    long_ago = time.time() - 40 * DAY
    os.utime(lock, (long_ago, long_ago))
    command("list")
    command("verify")  # neither is a use
    assert command("clean").startswith("Nothing to remove")
    assert command("clean", "--older-than", "41").startswith("Nothing to remove")
    assert "Removed" not in command("clean", "--older-than", "39", answer="n\n")
    prepare(pictures, size=20)
    assert command("clean", "--older-than", "39").startswith("Nothing to remove")
    os.utime(lock, (long_ago, long_ago))
    assert "Removed 1 of 1" in command("clean", "--older-than", "39", "--yes")
    assert names(folder) == set()


def test_old_formats_and_what_killed_processes_left_are_cleaned_and_files_of_others_never(
    pictures: list[Path], folder: Path
) -> None:
    current = prepare(pictures, size=20).path
    key = "0123456789abcdef"
    ours = {
        f"birds-256-{key}.bytes": b"facetric array file 1\n" + bytes(5000),
        f"trunk-net.v1-{key}.part": b"facetric array file 2\n" + bytes(5000),
        f"cars-256-{key}.part": bytes(9000),  # of a builder that was killed at once
        f"dogs-256-{key}.part": b"",
        f"cats-256-{key}.lock": b"",
    }
    others = {
        "notes.txt": b"mine",
        f"birds-{key}.txt": b"mine",
        f"photos-{key}.bytes": b"mine",
        f"download-{key}.part": b"mine",
        f"database-{key}.lock": b"mine",
        "birds-256-short.lock": b"",
    }
    for name, data in {**ours, **others}.items():
        (folder / name).write_bytes(data)
    (folder / f"folder-{key}.part").mkdir()
    states = {Path(entry["path"]).name: entry["state"] for entry in json.loads(command("list", "--json"))}
    assert states.keys() == {current.name, *ours}
    assert states[f"birds-256-{key}.bytes"] == "old format"
    assert {states[name] for name in ours} == {"old format", "left by a killed process"}
    assert "Removed 5 of 5" in command("clean", "--yes")
    assert names(folder) - {current.name, current.with_suffix(".lock").name} == {*others, f"folder-{key}.part"}
    assert "Removed 1 of 1" in command("clean", "--all", "--yes")
    assert names(folder) == {*others, f"folder-{key}.part"}


HOLD = "import sys; from filelock import FileLock\nwith FileLock(sys.argv[1]): print('held', flush=True); sys.stdin.readline()"


def test_a_cache_that_is_being_built_is_left_alone(pictures: list[Path], folder: Path) -> None:
    path = prepare(pictures, size=20).path
    path.rename(path.with_suffix(".part"))
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path.with_suffix(".lock"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    assert state(".part") == "being built"
    assert command("clean", "--all", "--yes").startswith("Nothing to remove")

    path.with_suffix(".part").rename(path)  # finished, and being rebuilt
    result = CliRunner().invoke(app, ["cache", "clean", "--all", "--yes"])
    assert result.exit_code == 1
    assert "Removed 0 of 1 files." in result.stdout
    assert "another process is building it" in result.stderr
    holder.communicate("go\n")
    assert "Removed 1 of 1" in command("clean", "--all", "--yes")
    assert names(folder) == set()


def test_verify_reads_every_block_and_a_damaged_cache_is_built_again(
    pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (array_file, array_format):
        monkeypatch.setattr(module, "BLOCK_BYTES", 512)
    good, damaged = prepare(pictures, size=50), prepare(pictures, size=51)
    right = damaged.pixels.copy()
    assert command("verify") == f"2 files, 0.1 MB, in {good.path.parent}: all intact.\n"
    status = damaged.path.stat()
    with damaged.path.open("r+b") as file:
        file.seek(4096 + 20 * 512)
        file.write(b"damage")
    os.utime(damaged.path, ns=(status.st_atime_ns, status.st_mtime_ns))
    told = command("verify", status=1)
    assert "51 × 51 pixels" in told
    assert "50 × 50 pixels" not in told
    assert told.endswith(": 1 damaged, to be rebuilt at their next use.\n")
    assert np.array_equal(prepare(pictures, size=51).pixels, right)
    assert good.file.is_good(verify=True)
    assert command("verify").endswith(": all intact.\n")


@pytest.mark.parametrize("position", [10, 60])
def test_a_damaged_header_is_told(pictures: list[Path], position: int) -> None:
    path = prepare(pictures, size=20).path
    with path.open("r+b") as file:
        file.seek(position + len(b"facetric array file 2\n"))
        file.write(b"damage")
    assert state() == "damaged"
    command("verify", status=1)
    assert "Removed 1 of 1" in command("clean", "--yes")


def test_a_name_that_could_steer_the_terminal_is_escaped(pictures: list[Path]) -> None:
    prepare(pictures, size=20, name="birds\x1b[2J\n")
    told = command("list")
    assert "\x1b" not in told
    assert r"birds\x1b[2J\n" in told


def test_wrong_usage_is_an_exit_status_of_two(pictures: list[Path]) -> None:
    prepare(pictures, size=20)
    for words in (
        ("clean", "--all", "--older-than", "3"),
        ("clean", "--older-than", "-1"),
        ("clean", "--older-than", "soon"),
        ("lst",),
    ):
        command(*words, status=2)
