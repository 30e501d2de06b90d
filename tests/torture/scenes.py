"""Commands that write, on data so small that each takes seconds: what it starts from, and what it must leave.

A new command is one entry of `COMMANDS`.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import processes
from facetric.runs.config_file import parse_config, to_toml
from photos.photo_files import photo
from torture.leftovers import state_of

TINY = {
    "run": {"name": "tiny", "steps": 6, "log_every": 1, "validate_every": 3, "checkpoint_every": 2, "threads": 1},
    "data": {"name": "glyphs", "options": {"min_images": 17}, "validation_fraction": 0.4, "pad": 2, "flip": False},
    "model": {"backbone": "glyphnet", "dim": 8, "weights": "none", "head_init": "orthogonal"},
    "loss": {"margin_weight": 8.0, "inference": "stochastic", "margin_decay_every": 2},
    "batches": {"size": 12},
    "optimizer": {"name": "adamw", "backbone_lr": 1e-3, "head_lr": 1e-3},
}
WRITING = {f"os.{name}" for name in ("rename", "remove", "rmdir", "mkdir", "truncate", "link", "symlink", "utime")}


@dataclass(frozen=True)
class Command:
    """A command that writes: its arguments, what it starts from, and the arguments that continue it after a kill."""

    name: str
    arguments: Callable[["Workshop", Path], list]
    prepare: Callable[["Workshop", Path], None] = lambda workshop, place: None
    again: Callable[["Workshop", Path], list] | None = None  # by default the same command


@dataclass(frozen=True)
class LeftAlone:
    """A command that was not disturbed: how long it took, how often it changed files, and what it left."""

    seconds: float
    n_changes: int
    state: dict


class Workshop:
    """Photos, an evaluated run, and a place for each command. Paths stay the same, for they are written into files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.photos, self.other_photos = folder, folder / "photos", folder / "other_photos"
        self.model, self.other_model, self.config = folder / "trained" / "tiny", folder / "other" / "tiny", folder / "tiny.toml"
        self._left_alone: dict[str, LeftAlone] = {}
        for root, seeds in ((self.photos, range(40)), (self.other_photos, range(20, 56))):
            for seed in seeds:
                path = root / f"{seed // 10}" / f"{seed:03}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                photo(seed, (64, 48)).save(path, quality=90)
        self.config.write_text(to_toml(parse_config({**TINY, "run": {**TINY["run"], "folder": str(folder / "trained")}})))
        self.must("train", self.config)
        shutil.copytree(self.model, folder / "only_trained" / "tiny")
        self.must("evaluate", self.model)
        self.must("train", self.config, "--set", f"run.folder={folder / 'other'}", "--set", "run.seed=1")

    def must(self, *arguments):
        """Run a command that has to succeed."""
        done = processes.command(*arguments, environment={"FACETRIC_CACHE": str(self.folder / "cache")})
        assert done.returncode == 0, f"facetric {' '.join(map(str, arguments))}: {done.stderr}"

    def place(self, command: Command) -> Path:
        """A fresh folder for a command, as it finds it."""
        name = command.name.replace(" ", "_")
        place, template = self.folder / "places" / name, self.folder / "templates" / name
        shutil.rmtree(place, ignore_errors=True)
        if not template.exists():
            place.mkdir(parents=True)
            command.prepare(self, place)
            shutil.copytree(place, template, symlinks=True)
            shutil.rmtree(place)
        shutil.copytree(template, place, symlinks=True)
        return place

    def start(self, command: Command, place: Path, log: Path, *, again=False, kill_at=0, **options):
        """Start a command in its place; it is killed just before the `kill_at`-th change to a file there."""
        arguments = (command.again if again and command.again else command.arguments)(self, place)
        environment = {"FACETRIC_CACHE": str(place / "cache")}
        watched = [place, kill_at, log.with_suffix(".changes")]
        return processes.start(
            *watched, *arguments, function="torture.scenes:watched", log=log, environment=environment, **options
        )

    def left_alone(self, command: Command) -> LeftAlone:
        """What it does when nothing happens; tried once."""
        if command.name not in self._left_alone:
            place, log, start = self.place(command), self.folder / "left_alone.log", time.monotonic()
            assert processes.wait(self.start(command, place, log)) == 0, f"{command.name}: {log.read_text()}"
            n_changes = int(log.with_suffix(".changes").read_text())
            self._left_alone[command.name] = LeftAlone(time.monotonic() - start, n_changes, state_of(place))
        return self._left_alone[command.name]


def watched(folder, kill_at, count, *arguments):
    """In a process of its own: a command that counts its changes to files in a folder, and dies just before one of them."""
    kill_at, n = int(kill_at), 0
    inside = os.fsencode(folder)

    def heard(event, values):
        nonlocal n
        if event == "open":
            if not isinstance(values[2], int) or not values[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
        elif event not in WRITING:
            return
        if isinstance(values[0], str | bytes | os.PathLike) and inside in os.fsencode(values[0]):
            n += 1
            if n == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(heard)
    from facetric.cli.main import app

    try:
        app(list(arguments), prog_name="facetric")
    finally:
        kill_at = 0
        Path(count).write_text(str(n))


def _trained(workshop, place):
    shutil.copytree(workshop.folder / "only_trained" / "tiny", place / "tiny")


def _an_index(workshop, place):
    workshop.must("index", "add", place / "index", workshop.photos, "--model", workshop.model, "--labels-from-folders")


def _train(workshop, place):
    return ["train", workshop.config, "--set", f"run.folder={place}"]


def _resume(workshop, place):
    if (place / "tiny" / "config.toml").is_file():
        return ["resume", place / "tiny"]
    shutil.rmtree(place / "tiny", ignore_errors=True)  # `train` refuses a folder that was killed at its start, and says so
    return _train(workshop, place)


def _reproduce(workshop, place):
    sizes = ["--trials", 1, "--seeds", 1, "--steps", 10, "--jobs", 1]
    settings = [f"--set={pair}" for pair in ("data.options.min_images=17", "batches.size=12", "run.checkpoint_every=4")]
    return ["reproduce", "glyphs", "--method", "triplet_semihard", "--output", place / "study", *sizes, *settings]


def _cluster(workshop, place):
    return ["cluster", workshop.photos, "-o", place / "groups", "--model", workshop.model, "--copy-to", place / "sorted"]


def _add(workshop, place):
    return ["index", "add", place / "index", workshop.photos, "--model", workshop.model, "--labels-from-folders"]


def _export(*more):
    return lambda workshop, place: ["export", workshop.model, place / "model.onnx", "--check", workshop.photos / "0", *more]


COMMANDS = (
    Command("train", _train, again=_resume),
    Command("evaluate", lambda w, p: ["evaluate", p / "tiny", "--restarts", 1], _trained),
    Command("report", lambda w, p: ["report", p / "tiny"], lambda w, p: shutil.copytree(w.model, p / "tiny")),
    Command("reproduce", _reproduce),
    Command("embed", lambda w, p: ["embed", w.photos, "--model", w.model, "-o", p / "v.npz"]),
    Command("index add", _add),
    Command("index add more", lambda w, p: ["index", "add", p / "index", w.other_photos, "--label", "new"], _an_index),
    Command("cluster", _cluster),
    Command("duplicates", lambda w, p: ["duplicates", w.photos, "-o", p / "duplicates.csv", "--no-look-alikes"]),
    Command("export", _export(), again=_export("--overwrite")),
)
