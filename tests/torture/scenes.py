"""Every command that writes, on data so small that it takes a second: what it starts from, and what it must leave.

A new command is one entry of `COMMANDS`.
"""

import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from facetric.config.config_file import parse_config, to_toml
from facetric.runs.states import read_state
from forge import Forge
from photos.photo_files import photo

_OURS = """
    cli.main cli.report inference figures.run_pictures figures.report studies.reproduction training.loop runs.evaluate
    photos.duplicates photos.look_alikes groups.page index.sqlite_store index.page clustering clustering.levels
    clustering.linkage evaluation.lloyd losses.facility_location evaluation.embedding
"""
_OTHERS = "openTSNE optuna matplotlib.figure faiss rich.progress pyarrow.parquet sklearn.cluster torch.optim"
MODULES = [*(f"facetric.{name}" for name in _OURS.split()), *_OTHERS.split()]
TINY = {
    "run": {"name": "tiny", "steps": 6, "log_every": 1, "validate_every": 3, "checkpoint_every": 2, "threads": 1},
    "data": {"name": "glyphs", "options": {"min_images": 17}, "validation_fraction": 0.4, "pad": 2, "flip": False},
    "model": {"backbone": "glyphnet", "dim": 8, "weights": "none", "head_init": "orthogonal"},
    "loss": {"margin_weight": 8.0, "inference": "stochastic", "margin_decay_every": 2},
    "batches": {"size": 12},
    "optimizer": {"name": "adamw", "backbone_lr": 1e-3, "head_lr": 1e-3},
}


class Workshop:
    """Photos, an evaluated run, and a place for each command. Paths stay the same, for they are written into files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.forge = Forge(folder, MODULES, FACETRIC_CACHE=str(folder / "warm_cache"))
        self.photos, self.other_photos = folder / "photos", folder / "other_photos"
        self.model, self.config = folder / "trained" / "tiny", folder / "tiny.toml"
        self.log = folder / "log"
        self.templates: dict[str, Path] = {}
        for root, seeds in ((self.photos, range(40)), (self.other_photos, range(20, 56))):
            for seed in seeds:
                path = root / f"{seed // 10}" / f"{seed:03}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                photo(seed, (64, 48)).save(path, quality=90)
        self.config.write_text(to_toml(parse_config({**TINY, "run": {**TINY["run"], "folder": str(folder / "trained")}})))
        self.must("train", self.config)
        shutil.copytree(self.model, folder / "only_trained" / "tiny")
        self.must("evaluate", self.model)
        self.forge.warm_up(self._warm_up())
        self.other_model = folder / "other" / "tiny"
        self.must("train", self.config, "--set", f"run.folder={folder / 'other'}", "--set", "run.seed=1")

    def _warm_up(self) -> list[list[str]]:
        """Commands that load all kernels."""
        place, model = self.folder / "warm", ["--model", self.model]
        shutil.copytree(self.folder / "only_trained" / "tiny", place / "tiny")
        commands = [
            ["evaluate", place / "tiny", "--restarts", 1],
            ["report", place / "tiny"],
            ["embed", self.photos, *model, "-o", place / "v.npz"],
            ["index", "add", place / "index", self.photos, *model],
            ["search", place / "index", self.photos / "0", "--page", place / "found.html"],
            ["cluster", self.photos, *model, "-o", place / "groups"],
            ["duplicates", self.photos, "-o", place / "duplicates.csv", "--no-look-alikes"],
        ]
        return [[str(word) for word in command] for command in commands]

    def must(self, *arguments, environment=None):
        """Run a command that has to succeed."""
        self.log.unlink(missing_ok=True)
        cache = {"FACETRIC_CACHE": str(self.folder / "cache")}
        status = self.forge.run(*arguments, log=self.log, environment=environment or cache)
        assert status == 0, f"facetric {' '.join(map(str, arguments))}: {status}\n{self.log.read_text()}"

    def place(self, command: "Command") -> Path:
        """A fresh folder for a command, as it finds it."""
        place = self.folder / "places" / command.name.replace(" ", "_")
        if command.name not in self.templates:
            template = self.folder / "templates" / command.name.replace(" ", "_")
            self._clear(place)
            command.prepare(self, place)
            shutil.copytree(place, template, symlinks=True)
            self.templates[command.name] = template
        self._clear(place)
        shutil.rmtree(place)
        shutil.copytree(self.templates[command.name], place, symlinks=True)
        return place

    def environment(self, place: Path) -> dict[str, str]:
        return {"FACETRIC_CACHE": str(place / "cache")}

    def close(self):
        self.forge.close()

    def _clear(self, place: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)


def nothing(workshop, place):
    """It starts from nothing."""


def a_run(evaluated: bool):
    def prepare(workshop, place):
        shutil.copytree(workshop.model if evaluated else workshop.folder / "only_trained" / "tiny", place / "tiny")

    return prepare


def an_index(workshop, place):
    workshop.must("index", "add", place / "index", workshop.photos, "--model", workshop.model, "--labels-from-folders")


def a_clustering(workshop, place):
    workshop.must("cluster", workshop.photos, "-o", place / "groups", "--model", workshop.model, "--copy-to", place / "sorted")


@dataclass(frozen=True)
class Command:
    """A command that writes: what it starts from, its arguments, and those that continue it after a kill."""

    name: str
    arguments: Callable[[Workshop, Path], list]
    prepare: Callable[[Workshop, Path], None] = nothing
    again: Callable[[Workshop, Path], list] | None = None  # by default the same command
    weight: float = 1.0  # how often it is tried, beside the others


def _again_train(workshop, place):
    run = place / "tiny"
    if (run / "config.toml").is_file():
        return ["resume", run]
    shutil.rmtree(run, ignore_errors=True)  # `facetric train` refuses a folder that was killed at its start, and says so
    return _train(workshop, place)


def _again_remove(workshop, place):
    """What is removed cannot be removed again: then the index is left as it is."""
    tables = dict(_rows(next(place.glob("index/*.sqlite"))))
    if any(b"/photos/1/" in row[0] for row in tables[b"photos"]):
        return ["index", "remove", place / "index", workshop.photos / "1"]
    return ["index", "status", place / "index"]


def _train(workshop, place):
    return ["train", workshop.config, "--set", f"run.folder={place}"]


def _reproduce(workshop, place):
    sizes = ["--trials", 1, "--seeds", 1, "--steps", 10, "--jobs", 1]
    settings = [f"--set={pair}" for pair in ("data.options.min_images=17", "batches.size=12", "run.checkpoint_every=4")]
    return ["reproduce", "glyphs", "--method", "triplet_semihard", "--output", place / "study", *sizes, *settings]


def _embed(suffix):
    return lambda w, p: ["embed", w.photos, "--model", w.model, "-o", p / f"v.{suffix}"]


def _cluster(*more):
    def arguments(w, p):
        return ["cluster", w.photos, "-o", p / "groups", "--model", w.model, "--copy-to", p / "sorted", *more]

    return arguments


COMMANDS = (
    Command("train, resume", _train, again=_again_train, weight=2.0),
    Command("evaluate", lambda w, p: ["evaluate", p / "tiny", "--restarts", 1], a_run(evaluated=False)),
    Command("report", lambda w, p: ["report", p / "tiny"], a_run(evaluated=True), weight=0.5),
    Command("reproduce", _reproduce, weight=0.5),
    Command("embed npz", _embed("npz")),
    Command("embed parquet", _embed("parquet")),
    Command("embed csv", _embed("csv")),
    Command("index add", lambda w, p: ["index", "add", p / "index", w.photos, "--model", w.model, "--labels-from-folders"]),
    Command("index add more", lambda w, p: ["index", "add", p / "index", w.other_photos, "--label", "new"], an_index),
    Command("index update", lambda w, p: ["index", "update", p / "index", w.photos], an_index),
    Command("index remove", lambda w, p: ["index", "remove", p / "index", w.photos / "1"], an_index, _again_remove),
    Command("index re-embed", lambda w, p: ["index", "re-embed", p / "index", "--model", w.other_model], an_index),
    Command("cluster", _cluster(), weight=2.0),
    Command("cluster again", _cluster("--coarser", "--coarser"), a_clustering),
    Command("duplicates", lambda w, p: ["duplicates", w.photos, "-o", p / "duplicates.csv", "--no-look-alikes"], weight=0.5),
    Command("search", lambda w, p: ["search", p / "index", w.photos / "0", "--page", p / "found.html"], an_index, weight=0.5),
    Command("compare", lambda w, p: ["compare", p / "tiny", "--picture", p / "table.png"], a_run(evaluated=True), weight=0.5),
)


def state_of(folder: Path) -> dict[str, object]:
    """Everything in a folder by name, bitwise but for clocks: databases by their rows, locks left out."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file() and (path.name != "lock" and not name.endswith((".lock", ".sqlite-wal", ".sqlite-shm"))):
            found[name] = _content(path)
    return found


def difference(found: dict, expected: dict) -> str:
    """The names of files that differ; empty if none do."""
    names = [name for name in {**expected, **found} if found.get(name) != expected.get(name)]
    kinds = {name: "missing" if name not in found else "not expected" if name not in expected else "different" for name in names}
    return ", ".join(f"{name} ({kind})" for name, kind in kinds.items())


def _content(path: Path) -> object:
    data = path.read_bytes()
    if path.name == "report.html" and "study" in path.parts:
        return "a report"  # of rows with their times
    if path.suffix == ".sqlite":
        return _rows(path)
    if path.suffix == ".pt":
        return _plain(read_state(path))  # pickled again, equal objects may share their bytes or not
    if path.name == "metrics.jsonl":
        return [_without_clock(json.loads(line)) for line in data.splitlines()]
    if path.name in ("environment.json", "study.json") or (path.parent.name == "search" and path.suffix == ".json"):
        return _without_clock(json.loads(data))
    if path.parent.name == "cache":
        data = data[4096:]  # the header holds the time
    return hashlib.sha256(data).hexdigest()


def _without_clock(value):
    if isinstance(value, dict):
        left_out = ("timing", "crc32", "sha256", "command", "git_commit", "seconds", "search_seconds")
        return {key: _without_clock(entry) for key, entry in value.items() if key not in left_out}
    return [_without_clock(entry) for entry in value] if isinstance(value, list) else value


def _plain(value):
    """A resume state, tensors by their bytes."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest()
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def _rows(path: Path) -> list:
    connection = sqlite3.connect(path)
    try:
        connection.text_factory = bytes
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        return [(table, sorted(connection.execute(f"SELECT * FROM {table.decode()}").fetchall())) for (table,) in tables]
    finally:
        connection.close()
