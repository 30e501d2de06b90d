"""What the first process writes while a run trains: rows, weights, checkpoints, and lines for the user."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from facetric.config.config import TrainConfig
from facetric.models import save_embedder
from facetric.runs.run import MetricsLog, RunFolder
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
        """The validated step with the highest score, the first among equals; the untrained network does not compete."""
        trained = [step for step in self.validation if step > 0]
        return max(trained, key=lambda step: (self.validation[step][metric], -step), default=None)


class Writer:
    """Belongs to the first process; the others have none."""

    def __init__(self, config: TrainConfig, folder: RunFolder, display: Display, progress: Progress) -> None:
        self.config, self.folder, self.display, self.progress = config, folder, display, progress
        with folder.writing():
            self.log = MetricsLog(folder.metrics, from_step=progress.step)
            board = folder.path / "tensorboard"
            self.board = TensorBoard(board, from_step=progress.step) if config.run.tensorboard else None
        display.start(progress.step)

    def append(self, row: dict[str, Any]) -> None:
        with self.folder.writing():
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
            with self.folder.writing():
                save_embedder(session.embedder, self.folder.checkpoints / "best.safetensors")
        self.display.validated(step, scores, best=best)

    def checkpoint(self, session: Session, state: dict[str, Any]) -> None:
        """The rows reach the disk before the state that relies on them; the embedder file is for use."""
        refuse_non_finite_weights(session.embedder, self.progress.step)
        with self.folder.writing():
            self.log.sync()
            write_state(self.folder.checkpoints, self.progress.step, {**state, "validation": self.progress.validation})
            save_embedder(session.embedder, self.folder.checkpoints / "last.safetensors")

    def close(self) -> None:
        self.display.stop()
        self.log.close()
        if self.board is not None:
            self.board.close()
