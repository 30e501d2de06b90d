"""`Run`: one object owns one run folder. The only place that knows the names of its files.

    config.toml           the resolved configuration; training it again repeats the run
    manifest.json         every class and image with its split, as training saw them
    environment.json      versions, seed, device, git commit of the code
    choice.json           the scores by which `run.choose_minutes` chose the recipe in config.toml
    metrics.jsonl         a row per logged step and per validation
    checkpoints/          best.safetensors and last.safetensors (networks), the states for an exact resume, and
                          best.pair_model.json: which of such images are probably of one class
    embeddings.npz        vectors, labels and image names of the test classes (embeddings-SPLIT.npz of another split)
    evaluation.json       every score, and how it was computed (evaluation-SPLIT.json)
    figures/, report.html
    tensorboard/, wandb/  when asked for (run.loggers)

Each result carries the fingerprint of what it was made from: embeddings that of the checkpoint, the evaluation that of the
embeddings, the report that of the evaluation. A result that does not match the other files is detected and never used.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from facetric.embedder import Network, Vectors, network_fingerprint, save_network
from facetric.evaluation import EvaluationReport
from facetric.files import read_checksummed, refuse_links, remove_stale_parts, write_atomically
from facetric.images import SPLITS, ImageDataset
from facetric.runs import states
from facetric.runs.config import TrainConfig
from facetric.runs.config_file import CONFIG_FILE, ConfigError, is_of_this_version, read_config, resolve_paths, to_toml
from facetric.runs.manifest import Manifest, resumed_images, run_images
from facetric.runs.scoring import evaluate_run
from facetric.runs.states import RunFolderError


class RunExistsError(RunFolderError, ValueError):
    """The folder of a new run is taken."""


def open_run(path: str | os.PathLike[str]) -> Run:
    """The run in this folder, with its configuration and manifest read and checked; one line says what is wrong with it."""
    run = Run(path)
    run.config, run.manifest  # noqa: B018
    return run


class Run:
    """A run folder, existing or yet to be created. `open_run` opens an existing one."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.config_file = self.path / CONFIG_FILE
        self.manifest_file = self.path / "manifest.json"
        self.environment_file = self.path / "environment.json"
        self.choice_file = self.path / "choice.json"
        self.metrics_file = self.path / "metrics.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.tensorboard = self.path / "tensorboard"
        self.wandb = self.path / "wandb"
        self.figures = self.path / "figures"
        self.report_file = self.path / "report.html"

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @classmethod
    def of(cls, config: TrainConfig) -> Run:
        """The run folder of this configuration."""
        return cls(Path(config.run.folder) / config.run.name)

    @classmethod
    def new(cls, config: TrainConfig) -> Run:
        """A run to create, its configuration with absolute paths. Says early, before any work, that its folder is taken."""
        config = resolve_paths(config)
        run = cls.of(config)
        run.refuse_existing()
        run.config = config
        return run

    @property
    def resume_command(self) -> str:
        return f"facetric resume {self.path}"

    def evaluate_command(self, split: str = "test") -> str:
        return f"facetric evaluate {self.path}" + ("" if split == "test" else f" --split {split}")

    # Made once, owned by one process at a time

    def refuse_existing(self) -> None:
        if not self.path.exists() and not self.path.is_symlink():
            return
        if self.config_file.is_file():
            way_out = f"choose another folder with --output, continue it with `{self.resume_command}`, or remove it"
        else:
            way_out = f"it has no {CONFIG_FILE}, so it is no run, or was killed at its start: remove it, or choose --output"
        raise RunExistsError(f"{self.path} exists and is not overwritten: {way_out}")

    def was_killed_at_start(self) -> bool:
        """Whether the folder holds nothing but what `create` writes before the configuration. Only for who owns the folder."""
        if self.config_file.exists() or not self.path.is_dir():
            return False
        own = {self.environment_file, self.manifest_file, self.checkpoints}
        others = [path for path in self.path.iterdir() if path not in own and path.suffix != ".part"]
        return not others and not (self.checkpoints.is_dir() and any(self.checkpoints.iterdir()))

    @contextmanager
    def begun(self, config: TrainConfig, environment: dict[str, Any], dataset: ImageDataset) -> Iterator[None]:
        """A new run on these images, being trained: its folder with what defines it, locked."""
        self.create(config, environment, Manifest.of(dataset, config.data.root))
        with self.locked():
            yield

    def create(self, config: TrainConfig, environment: dict[str, Any], manifest: Manifest) -> None:
        """Create the folder, which must not exist yet, with configuration, environment and manifest (config.toml last)."""
        self.__dict__.pop("config", None)
        try:
            settings = to_toml(config).encode()
        except UnicodeEncodeError:
            raise ConfigError(
                f"data.root and the other settings must be UTF-8 text; {config.data.root!r} is not: rename the folder"
            ) from None
        content = {
            self.environment_file: (json.dumps(environment, indent=1) + "\n").encode(),
            self.manifest_file: manifest.to_json().encode(),
            self.config_file: settings,
        }
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.mkdir()
        except OSError as error:
            self.refuse_existing()
            raise RunFolderError(
                f"cannot create the run folder {self.path}: {error.strerror}; change the permissions there or choose --output"
            ) from error
        try:
            self.checkpoints.mkdir()
            for path, data in content.items():
                write_atomically(path, data)
        except OSError as error:
            shutil.rmtree(self.path, ignore_errors=True)  # made a moment ago, and empty but for this
            raise RunFolderError(
                f"cannot write {error.filename or self.path}: {error.strerror}; free some space or change the permissions, and "
                "start again"
            ) from error

    @contextmanager
    def locked(self, what: str = "trained") -> Iterator[None]:
        """One process trains a run, and one evaluates it; a killed process releases its lock.

        A folder with symbolic links inside, such as one received from somebody else may have, is not written to.
        """
        self.refuse_links()
        with self.writing():
            try:
                lock = FileLock(self.path / (".lock" if what == "trained" else f".{what}.lock")).acquire(timeout=0)
            except Timeout:
                raise RunFolderError(f"{self.path} is being {what} by another process: wait for it, or stop it") from None
        with lock:
            remove_stale_parts(self.path, self.checkpoints, self.figures)
            yield

    def refuse_links(self) -> None:
        """Before anything is written: a link inside the folder would have another place changed."""
        with self.writing():
            refuse_links(self.path, left_out=("wandb",))  # W&B keeps links of its own there

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turn disk errors into one-line messages."""
        try:
            yield
        except RunFolderError:
            raise
        except OSError as error:
            where = error.filename if isinstance(error.filename, str) else self.path
            way_out = "; what was saved before is untouched: free some space or change the permissions, then "
            way_out = "" if error.errno == errno.ELOOP else f"{way_out}`{self.resume_command}`"  # a link's message has its own
            raise RunFolderError(f"cannot write {where}: {error.strerror or error}{way_out}") from error

    # What defines the run

    @cached_property
    def config(self) -> TrainConfig:
        """The configuration, with the current place of the folder."""
        if not self.path.is_dir():
            what = "is a file, not a run folder" if self.path.exists() else "does not exist"
            raise ConfigError(f"{self.path} {what}: pass a run folder such as runs/photos")
        if not self.config_file.is_file():
            raise ConfigError(
                f"{self.path} has no {self.config_file.name}, so it is not a run: pass one that `facetric train` made"
            )
        config = read_config(self.config_file)
        if not is_of_this_version(self.config_file):
            raise ConfigError(
                f"{self.path} was made by facetric 0.2, this version reads those of 0.3: train it again, as in `facetric train "
                f"{self.config_file} --output …`, or install the version that made it: pip install 'facetric<0.3'"
            )
        place = {"folder": str(self.path.absolute().parent), "name": self.path.absolute().name}
        return config.model_copy(update={"run": config.run.model_copy(update=place)})

    def save_config(self, config: TrainConfig) -> None:
        """Replace the configuration by one with the chosen recipe."""
        with self.writing():
            write_atomically(self.config_file, to_toml(config).encode())
        self.__dict__.pop("config", None)

    def save_choice(self, record: bytes) -> None:
        with self.writing():
            write_atomically(self.choice_file, record)

    def why_chosen(self) -> str:
        """The sentence of choice.json: the recipe and what it gains. Empty where none was chosen or the file is damaged."""
        try:
            return str(read_checksummed(self.choice_file.read_bytes())["why"])
        except (OSError, ValueError, LookupError, TypeError):
            return ""

    @cached_property
    def manifest(self) -> Manifest:
        """The data that the run was trained on."""
        try:
            return Manifest.from_json(self.manifest_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            reason = "is missing"
        except (OSError, ValueError) as error:
            reason = f"cannot be used: {error}"
        raise ConfigError(
            f"{self.manifest_file} {reason}. Without it the training classes are unknown: restore it, or train again"
        )

    images = run_images
    images_to_resume = resumed_images
    evaluate = evaluate_run

    # Checkpoints and results, each tied to what it was made from

    def network_file(self, name: str) -> Path:
        return self.checkpoints / f"{name}.safetensors"

    def save(self, network: Network, name: str, state: dict[str, Any] | None = None) -> None:
        """The network as "best" or "last", then the `state` of its step, which is what an exact resume needs.

        The rows of metrics.jsonl are on disk before it: an existing state always has them.
        """
        with self.writing():
            save_network(network, self.network_file(name))
            if state is not None:
                with self.metrics_file.open("ab") as rows:
                    os.fsync(rows.fileno())
                states.write_state(self.checkpoints, state["step"], state)

    def log(self, row: dict[str, Any]) -> None:
        """A row of metrics.jsonl."""
        with self.writing():
            states.append_row(self.metrics_file, row)

    def rows(self) -> tuple[list[dict[str, Any]], int]:
        """Those of metrics.jsonl, and the number of lines that are damaged (the last one may be half written)."""
        return states.read_rows(self.metrics_file)

    def state_to_resume(self) -> dict[str, Any] | None:
        """The newest intact resume state; None when none was saved. What a process that was killed left beside it is removed."""
        state = states.read_newest_state(self.checkpoints)
        step = 0 if state is None else state["step"]
        with self.writing():
            states.remove_earlier_states(self.checkpoints, step)
            states.cut_rows(self.metrics_file, after=step)
        return state

    def n_steps(self) -> int:
        """Steps until the newest resume state; 0 without any."""
        return max((step for step, _ in states.states(self.checkpoints)), default=0)

    def remove_states(self) -> None:
        """For a finished run that will not be resumed: only its networks are kept."""
        for _, path in states.states(self.checkpoints):
            path.unlink()

    def embeddings_file(self, split: str = "test") -> Path:
        return self.path / f"embeddings{_ending(split)}.npz"

    def evaluation_file(self, split: str = "test") -> Path:
        return self.path / f"evaluation{_ending(split)}.json"

    def embeddings(self, split: str = "test") -> Vectors:
        """The saved embeddings of a split; a ValueError if they are of another checkpoint."""
        path = self.embeddings_file(split)
        if not path.is_file():
            raise ValueError(f"{self.path} has no {path.name}: run `{self.evaluate_command(split)}` first")
        found = Vectors.load(path)
        self._refuse_other_checkpoint(path, found.source, split)
        return found

    def evaluation(self, split: str = "test") -> EvaluationReport:
        """The saved scores of a split; a ValueError if they are of other embeddings or another checkpoint."""
        path = self.evaluation_file(split)
        if not path.is_file():
            raise ValueError(f"{self.path} is not evaluated, {path.name} is missing: run `{self.evaluate_command(split)}` first")
        report = EvaluationReport.load(path)
        self._refuse_other_checkpoint(path, report.source, split)
        embeddings = self.embeddings_file(split)
        known = report.source.get("embeddings")
        if known is not None and embeddings.is_file() and Vectors.load(embeddings).fingerprint != known:
            raise ValueError(
                f"{path} holds the scores of other embeddings than those in {embeddings.name}: run "
                f"`{self.evaluate_command(split)}` again"
            )
        return report

    def _refuse_other_checkpoint(self, path: Path, source: dict[str, Any], split: str) -> None:
        if "manifest" in source and self.manifest_file.is_file() and source["manifest"] != self.manifest.fingerprint:
            raise ValueError(f"{path} was made with another manifest: run `{self.evaluate_command(split)}` again")
        weights = self.checkpoints / str(source.get("checkpoint", ""))
        if "model" in source and weights.is_file() and network_fingerprint(weights) != source["model"]:
            raise ValueError(f"{path} was made from an earlier {weights.name}: run `{self.evaluate_command(split)}` again")

    def report_is_current(self) -> bool:
        """Whether report.html was made from the scores that are there now."""
        try:
            with self.report_file.open("rb") as page:
                return self.evaluation().fingerprint.encode() in page.read(4096)
        except (OSError, ValueError):
            return False


def _ending(split: str) -> str:
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(reversed(SPLITS))}; got {split!r}: choose one of these")
    return "" if split == "test" else f"-{split}"
