"""Every command that writes, on data so small that it takes a second: what it starts from, and what it must leave.

A new command is one entry of `COMMANDS`.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident

from facetric.runs.config_file import parse_config, to_toml
from forge import Forge
from photos.photo_files import photo
from torture.leftovers import rows_of, state_of

_OURS = """
    cli.main cli.report inference figures.run_pictures figures.report studies.reproduction training.loop runs.evaluate
    photos.duplicates photos.look_alikes groups.page index.sqlite_store index.page clustering clustering.levels
    clustering.linkage evaluation.lloyd losses.facility_location evaluation.embedding figures.comparison export.writing
    service.server models.trunk_cache data.caches
"""
_OTHERS = """
    timm openTSNE optuna matplotlib.figure faiss rich.progress rich._emoji_codes pyarrow.parquet sklearn.cluster torch.optim
    torch.utils.serialization.config service.running torture.serving
"""
MODULES = [*(f"facetric.{name}" for name in _OURS.split()), *_OTHERS.split()]
TINY = {
    "run": {"name": "tiny", "steps": 6, "log_every": 1, "validate_every": 3, "checkpoint_every": 2, "threads": 1},
    "data": {"name": "glyphs", "options": {"min_images": 17}, "validation_fraction": 0.4, "pad": 2, "flip": False},
    "model": {"backbone": "glyphnet", "dim": 8, "weights": "none", "head_init": "orthogonal"},
    "loss": {"margin_weight": 8.0, "inference": "stochastic", "margin_decay_every": 2},
    "batches": {"size": 12},
    "optimizer": {"name": "adamw", "backbone_lr": 1e-3, "head_lr": 1e-3},
}
# on photos, with a cache of prepared pictures and one of activations
CACHED = {
    **TINY,
    "run": {**TINY["run"], "name": "cached", "steps": 3, "validate_every": 0},
    "data": {"name": "folder", "size": 80, "pad": 0},
    "model": {
        **TINY["model"],
        "backbone": "test_efficientnet",
        "image_size": 64,
        "freeze_through": "blocks.0",
        "cached_views": 1,
    },
    "batches": {"size": 8},
}


@dataclass(frozen=True)
class LeftAlone:
    """A command that was not disturbed: how long it took, how often it changed files, and what it left."""

    seconds: float
    n_events: int
    state: dict


class Workshop:
    """Photos, an evaluated run, and a place for each command. Paths stay the same, for they are written into files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.forge = Forge(folder, MODULES, FACETRIC_CACHE=str(folder / "warm_cache"))
        self.photos, self.other_photos, self.classes = folder / "photos", folder / "other_photos", folder / "classes"
        self.model, self.config = folder / "trained" / "tiny", folder / "tiny.toml"
        self.templates: dict[str, Path] = {}
        self._left_alone: dict[str, LeftAlone] = {}
        for root, seeds, size in (
            (self.photos, range(40), 10),
            (self.other_photos, range(20, 56), 10),
            (self.classes, range(32), 4),
        ):
            for seed in seeds:
                path = root / f"{seed // size}" / f"{seed:03}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                photo(seed, (64, 48)).save(path, quality=90)
        self.config.write_text(to_toml(parse_config({**TINY, "run": {**TINY["run"], "folder": str(folder / "trained")}})))
        cached = {**CACHED, "data": {**CACHED["data"], "root": str(self.photos)}}
        (folder / "cached.toml").write_text(to_toml(parse_config(cached)))
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
            ["export", self.model, place / "model.onnx"],
        ]
        return [[str(word) for word in command] for command in commands]

    def must(self, *arguments, environment=None):
        """Run a command that has to succeed."""
        log = self.folder / f"{get_ident()}.log"
        log.unlink(missing_ok=True)
        cache = {"FACETRIC_CACHE": str(self.folder / "cache")}
        status = self.forge.run(*arguments, log=log, environment=environment or cache)
        assert status == 0, f"facetric {' '.join(map(str, arguments))}: {status}\n{log.read_text()}"

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

    def log(self, command: "Command") -> Path:
        return self.folder / f"{command.name.replace(' ', '_')}.log"

    def left_alone(self, command: "Command") -> "LeftAlone":
        """What it does when nothing happens; tried once."""
        if command.name not in self._left_alone:
            place, log, events = self.place(command), self.log(command), self.log(command).with_suffix(".events")
            log.unlink(missing_ok=True)
            start = time.monotonic()
            status = self.run(command, command.arguments, place, log=log, events_file=str(events))
            assert status == 0, f"{command.name}: {log.read_text()}"
            seconds = time.monotonic() - start
            self._left_alone[command.name] = LeftAlone(seconds, int(events.read_text()), state_of(place))
        return self._left_alone[command.name]

    def start(self, command: "Command", arguments: Callable, place: Path, *, log: Path, **options) -> int:
        """Start a command in its place, with the caches there; gives its process id."""
        options = {
            "environment": {"FACETRIC_CACHE": str(place / "cache")},
            "folder": place,
            "function": command.function,
            **options,
        }
        return self.forge.start(*arguments(self, place), log=log, **options)

    def run(self, command: "Command", arguments: Callable, place: Path, *, log: Path, **options) -> int:
        return self.forge.wait(self.start(command, arguments, place, log=log, **options))

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


def caches(workshop, place):
    environment = {"FACETRIC_CACHE": str(place / "cache")}
    workshop.must("train", workshop.folder / "cached.toml", "--output", place / "run", environment=environment)
    shutil.rmtree(place / "run")


@dataclass(frozen=True)
class Command:
    """A command that writes: what it starts from, its arguments, and those that continue it after a kill."""

    name: str
    arguments: Callable[[Workshop, Path], list]
    prepare: Callable[[Workshop, Path], None] = nothing
    again: Callable[[Workshop, Path], list] | None = None  # by default the same command
    function: str | None = None  # module:function of the tests that is called with the arguments, instead of facetric
    weight: float = 1.0  # how often it is tried, beside the others


def _continued(run, start, *, resume=lambda folder: ["resume", folder]):
    """The command that starts the run in this folder, and the one that continues it."""

    def again(workshop, place):
        if (place / run / "config.toml").is_file():
            return resume(place / run) or start(workshop, place)
        shutil.rmtree(place / run, ignore_errors=True)  # `train` refuses a folder that was killed at its start, and says so
        return start(workshop, place)

    return {"arguments": start, "again": again}


def _training(name):
    return _continued(name, lambda w, p: ["train", w.folder / f"{name}.toml", "--set", f"run.folder={p}"])


def _choose(workshop, place):
    """Recipes are compared before one of them trains."""
    settings = "run.steps=2 run.threads=1 data.options.test_fraction=0.25 data.size=72 model.image_size=64 model.cached_views=1"
    settings = [f"--set={pair}" for pair in f"{settings} model.freeze_through=all".split()]
    return ["train", "--data", "folder", "--root", workshop.classes, "--output", place / "chosen", *settings]


def _demo(workshop, place):
    settings = "data.options.min_images=17 batches.size=24 model.dim=16 run.threads=1 run.log_every=1 run.checkpoint_every=1"
    return ["demo", *(f"--set={pair}" for pair in f"{settings} run.steps=3 run.folder={place}".split())]


def _again_remove(workshop, place):
    """What is removed cannot be removed again: then the index is left as it is."""
    tables = dict(rows_of(next(place.glob("index/*.sqlite"))))
    if any(b"/photos/1/" in row[0] for row in tables[b"photos"]):
        return ["index", "remove", place / "index", workshop.photos / "1"]
    return ["index", "status", place / "index"]


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


def _export(*more):
    return lambda w, p: ["export", w.model, p / "model.onnx", "--check", w.photos / "0", *more]


def _decide(workshop, place):
    return [place / "index", workshop.model, place / "acknowledged"]


COMMANDS = (
    Command("train, resume", **_training("tiny")),
    Command("train with caches", **_training("cached")),
    Command("evaluate", lambda w, p: ["evaluate", p / "tiny", "--restarts", 1], a_run(evaluated=False), weight=0.7),
    Command("report", lambda w, p: ["report", p / "tiny"], a_run(evaluated=True), weight=0.4),
    Command("reproduce", _reproduce, weight=0.4),
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
    Command("export", _export(), again=_export("--overwrite"), weight=0.4),
    Command("serve", _decide, an_index, function="torture.serving:decide"),
    Command("cache clean", lambda w, p: ["cache", "clean", "--all", "--yes"], caches, weight=0.5),
    Command("compare", lambda w, p: ["compare", p / "tiny", "--picture", p / "table.png"], a_run(evaluated=True), weight=0.5),
    Command("train, a choice", **_continued("chosen", _choose), weight=0.2),
    Command("train --final", **_continued("all", lambda w, p: ["train", "--final", w.model, "--output", p / "all"]), weight=0.5),
    Command("demo", **_continued("demo", _demo, resume=lambda folder: None), weight=0.2),
)
