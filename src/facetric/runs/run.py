"""The folder of a run: created once, owned by one process at a time, and no file in it is ever half written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from facetric.files import write_atomically
from facetric.config.config import TrainConfig
from facetric.config.config_file import ConfigError, read_config, to_toml


class RunFolderError(OSError):
    """The run folder cannot be made, read or written; the message is one line that says where, why and what to do."""


class RunFolder:
    """``runs/NAME``: config.toml, environment.json, metrics.jsonl, checkpoints/."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.metrics = self.path / "metrics.jsonl"

    @classmethod
    def of(cls, config: TrainConfig) -> RunFolder:
        return cls(Path(config.run.folder) / config.run.name)

    @property
    def resume_command(self) -> str:
        return f"facetric resume {self.path}"

    def refuse_existing(self) -> None:
        """Say early, before any work, that this run is there already."""
        if self.path.exists() or self.path.is_symlink():
            raise RunFolderError(
                f"{self.path} exists and is not overwritten: choose another name with --set run.name=…, go on with "
                f"`{self.resume_command}`, or remove it"
            )

    def create(self, config: TrainConfig, environment: dict[str, Any]) -> None:
        """Make the folder with the resolved configuration and the environment. It must not be there yet."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.mkdir()
        except FileExistsError:
            self.refuse_existing()
            raise RunFolderError(f"cannot make the run folder {self.path}: a file is in the way; set run.folder") from None
        except OSError as error:
            raise RunFolderError(
                f"cannot make the run folder {self.path}: {error.strerror}; change the permissions there or set run.folder"
            ) from error
        with self.writing():
            self.checkpoints.mkdir()
            write_atomically(self.path / "environment.json", (json.dumps(environment, indent=2) + "\n").encode())
            write_atomically(self.path / "config.toml", to_toml(config).encode())

    def read(self) -> TrainConfig:
        """The configuration of an existing run, at this place whatever the place it was made in."""
        if not self.path.is_dir():
            raise RunFolderError(f"there is no run {self.path}: pass a run folder such as runs/glyphs")
        if not (self.path / "config.toml").is_file():
            raise ConfigError(f"{self.path} has no config.toml, so it is no run: remove it and train again")
        config = read_config(self.path / "config.toml")
        place = {"folder": str(self.path.absolute().parent), "name": self.path.absolute().name}
        return config.model_copy(update={"run": config.run.model_copy(update=place)})

    @contextmanager
    def owned(self) -> Iterator[None]:
        """One process trains a run; a killed one lets go."""
        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise RunFolderError(f"{self.path} is being trained by another process: wait for it, or stop it") from None
        except OSError as error:
            raise self._cannot_write(error) from error
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turn what goes wrong on the disk into one line."""
        try:
            yield
        except RunFolderError:
            raise
        except OSError as error:
            raise self._cannot_write(error) from error

    def _cannot_write(self, error: OSError) -> RunFolderError:
        reason = error.strerror or str(error)
        return RunFolderError(
            f"cannot write to {self.path}: {reason}; what was saved before is untouched: free some space or change the "
            f"permissions, then `{self.resume_command}`"
        )


class MetricsLog:
    """metrics.jsonl: one JSON object per line, appended; rows beyond the step where a resumed run begins are cut off."""

    def __init__(self, path: Path, *, from_step: int) -> None:
        with path.open("ab+") as file:  # "a" creates it, reading finds where to cut
            file.seek(0)
            keep = 0
            for line in file:
                if not line.endswith(b"\n") or _step_of(line) > from_step or from_step == 0:
                    break
                keep += len(line)
            file.truncate(keep)
        self._file = path.open("ab")

    def append(self, row: dict[str, Any]) -> None:
        """One row, handed to the operating system at once: it survives the end of this process."""
        self._file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
        self._file.flush()

    def sync(self) -> None:
        """On the disk, before a checkpoint that relies on it."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        with suppress(OSError):  # a full disk has been reported by append
            self._file.close()


def _step_of(line: bytes) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
