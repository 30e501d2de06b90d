"""What is recorded about a run besides its own rows: TensorBoard and W&B (`run.loggers`), and environment.json."""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from facetric.files import write_atomically
from facetric.machine import installed_version
from facetric.runs import Run, TrainConfig

PROJECT = "facetric"  # of W&B; WANDB_PROJECT in the environment is another


class TensorBoard:
    """Files in the folder tensorboard/ of the run."""

    def __init__(self, config: TrainConfig, run: Run, *, from_step: int) -> None:
        self._writer = _package("tensorboard").SummaryWriter(str(run.tensorboard), purge_step=from_step + 1)

    def append(self, row: dict[str, Any]) -> None:
        for name, number in scalars(row):
            self._writer.add_scalar(name, number, row["step"])

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of W&B, with its files in the folder wandb/ of the run; a resumed run continues under the same id.

    Whether it is sent, kept for `wandb sync` or neither is up to W&B's own settings, as in WANDB_MODE=offline. Steps are a value
    of each row: W&B's own counter cannot go back to a checkpoint.
    """

    def __init__(self, config: TrainConfig, run: Run, *, from_step: int) -> None:
        wandb, kept = _package("wandb"), run.wandb / "facetric-id"
        if not kept.is_file():
            kept.parent.mkdir(exist_ok=True)
            write_atomically(kept, uuid.uuid4().hex.encode())
        try:
            self._run = wandb.init(
                project=None if os.environ.get("WANDB_PROJECT") else PROJECT,
                mode=os.environ.get("WANDB_MODE") or None,  # as it is now: W&B reads the environment once in a process
                name=config.run.name,
                id=kept.read_text().strip(),
                resume="allow",
                dir=str(run.path),
                config=config.model_dump(mode="json"),
                settings=wandb.Settings(console="off", silent=True),
            )
        except Exception as error:  # no login, no server: whatever it is, it is W&B's
            reason = " ".join(str(error).split())[:300]
            raise ValueError(
                f"W&B cannot start a run ({reason}): log in with `wandb login`, set WANDB_MODE=offline, or leave wandb out of "
                "run.loggers"
            ) from error
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def append(self, row: dict[str, Any]) -> None:
        self._run.log({**dict(scalars(row)), "step": row["step"]})

    def close(self) -> None:
        self._run.finish()


def start_loggers(config: TrainConfig, run: Run, *, from_step: int) -> list[TensorBoard | WeightsAndBiases]:
    """Those of `run.loggers`, after this step."""
    known: dict[str, type[TensorBoard | WeightsAndBiases]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}
    with run.writing():
        return [known[name](config, run, from_step=from_step) for name in config.run.loggers]


def require_loggers(names: tuple[str, ...]) -> None:
    """A ValueError when a package is not installed."""
    for name in names:
        _package(name)


def scalars(row: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a row, as training/loss, validation/nmi, timing/step_seconds."""
    for name, value in row.items():
        if isinstance(value, dict):
            yield from ((f"{name}/{inner}", number) for inner, number in value.items())
        elif name != "step" and value is not None:
            yield f"training/{name}", value


def _package(name: str) -> Any:
    try:
        return importlib.import_module({"tensorboard": "torch.utils.tensorboard"}.get(name, name))
    except ImportError:
        title = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases"}[name]
        raise ValueError(
            f"run.loggers has {name!r}, and {title} is not installed: pip install 'facetric[{name}]', or leave it out"
        ) from None


_PACKAGES = ("facetric", "torch", "torchvision", "timm", "lightning-fabric", "numpy", "numba", "safetensors", "pillow")


def describe_environment(*, seed: int, device: torch.device, n_processes: int) -> dict[str, Any]:
    """Versions, seed, device, threads and the git commit of the code when it runs from a checkout."""
    return {
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: installed_version(name) for name in _PACKAGES},
        "seed": seed,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "processes": n_processes,
        "threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
        "git_commit": _git_commit(),
    }


def say_differences(path: Path, now: dict[str, Any], say: Callable[[str], None]) -> None:
    """One line if a resumed run may not be bitwise identical: other versions, threads, device or processes."""
    try:
        before = dict(json.loads(path.read_bytes()))
    except OSError:
        return
    except (ValueError, TypeError, RecursionError) as error:
        say(f"{path} is damaged ({error}): whether the environment has changed is unknown")
        return
    changed = [key for key in ("versions", "device", "processes", "threads", "git_commit") if before.get(key) != now[key]]
    if changed:
        words = ", ".join(key if key == "versions" else f"{key} ({before.get(key)} → {now[key]})" for key in changed)
        say(f"the environment differs from the one the run started in: {words}; results may differ in the last digits")


def _git_commit() -> str | None:
    """The commit of the code, with "+changes" when files differ from it; None outside a checkout."""
    command = ["git", "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty=+changes"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
