"""Where the rows of metrics.jsonl go besides: TensorBoard and Weights & Biases, as `run.loggers` asks for."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Any, Protocol

from facetric.files import write_atomically
from facetric.runs import Run, TrainConfig

PROJECT = "facetric"  # of W&B; WANDB_PROJECT in the environment is another


class Logger(Protocol):
    """Takes the rows of metrics.jsonl as they come."""

    def append(self, row: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Files in the folder tensorboard/ of the run."""

    def __init__(self, config: TrainConfig, run: Run, *, from_step: int) -> None:
        self._writer = _summary_writer()(str(run.tensorboard), purge_step=from_step + 1)

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
        wandb = _wandb()
        try:
            self._run = wandb.init(
                project=_project(),
                mode=os.environ.get("WANDB_MODE") or None,  # as it is now: W&B reads the environment once in a process
                name=config.run.name,
                id=_wandb_id(run),
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


_LOGGERS: dict[str, type[TensorBoard] | type[WeightsAndBiases]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def start_loggers(config: TrainConfig, run: Run, *, from_step: int) -> list[Logger]:
    """Those of `run.loggers`, after this step."""
    return [_LOGGERS[name](config, run, from_step=from_step) for name in config.run.loggers]


def require_loggers(names: tuple[str, ...]) -> None:
    """A ValueError when a package is not installed."""
    needed = {"tensorboard": _summary_writer, "wandb": _wandb}
    for name in names:
        needed[name]()


def scalars(row: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a row, as training/loss, validation/nmi, timing/step_seconds."""
    for name, value in row.items():
        if isinstance(value, dict):
            yield from ((f"{name}/{inner}", number) for inner, number in value.items())
        elif name != "step" and value is not None:
            yield f"training/{name}", value


def _summary_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise _missing("tensorboard", "TensorBoard") from None
    return SummaryWriter


def _wandb() -> Any:
    try:
        import wandb
    except ImportError:
        raise _missing("wandb", "Weights & Biases") from None
    return wandb


def _missing(name: str, title: str) -> ValueError:
    return ValueError(f"run.loggers has {name!r}, and {title} is not installed: pip install 'facetric[{name}]', or leave it out")


def _project() -> str | None:
    return None if os.environ.get("WANDB_PROJECT") else PROJECT


def _wandb_id(run: Run) -> str:
    """Made once, kept in the run folder."""
    path = run.wandb / "facetric-id"
    if not path.is_file():
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, uuid.uuid4().hex.encode())
    return path.read_text().strip()
