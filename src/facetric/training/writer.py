"""What the first process writes while a run trains: rows, weights, checkpoints, and lines for the user."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from facetric.config.config import TrainConfig
from facetric.runs.metrics_log import MetricsLog
from facetric.runs.run import Run
from facetric.runs.states import write_state
from facetric.training.display import Display, TensorBoard
from facetric.training.health import refuse_non_finite_weights
from facetric.training.session import Session
from facetric.training.validation import Scores, Validator


@dataclass
class Progress:
    """How far a run is."""

    step: int = 0
    validation: dict[int, Scores] = field(default_factory=dict)

    def best_step(self, metric: str) -> int | None:
        """The validated step with the highest score, the first of ties; the untrained network does not count."""
        trained = [step for step in self.validation if step > 0]
        return max(trained, key=lambda step: (self.validation[step][metric], -step), default=None)


class Writer:
    """Belongs to the first process; the others have none."""

    def __init__(self, config: TrainConfig, run: Run, display: Display, progress: Progress) -> None:
        self.config, self.run, self.display, self.progress = config, run, display, progress
        with run.writing():
            self.log = MetricsLog(run.metrics_file, from_step=progress.step)
            self.board = TensorBoard(run.tensorboard, from_step=progress.step) if config.run.tensorboard else None
        display.start(progress.step)

    def append(self, row: dict[str, Any]) -> None:
        with self.run.writing():
            self.log.append(row)
            if self.board is not None:
                self.board.append(row)

    def validate(self, session: Session, validator: Validator) -> None:
        """Score the held-out classes; keep the weights if they are the best so far."""
        start = time.perf_counter()
        step = self.progress.step
        scores = validator(session.embedder)
        self.progress.validation[step] = scores
        self.append({"step": step, "validation": scores, "timing": {"validation_seconds": time.perf_counter() - start}})
        best = self.progress.best_step(self.config.run.best_metric) == step
        if best:
            self.run.save_embedder(session.embedder, "best")
        self.display.validated(step, scores, best=best)

    def checkpoint(self, session: Session, state: dict[str, Any]) -> None:
        """The rows and the embedder are written before the state: an existing state always has them."""
        refuse_non_finite_weights(session.embedder, self.progress.step)
        self.run.save_embedder(session.embedder, "last")
        with self.run.writing():
            self.log.sync()
            write_state(self.run.checkpoints, self.progress.step, {**state, "validation": self.progress.validation})

    def close(self) -> None:
        self.display.stop()
        self.log.close()
        if self.board is not None:
            self.board.close()
