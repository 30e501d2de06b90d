"""One training step: forward, loss of the global batch, backward, update."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from facetric.training.clock import StepClock
from facetric.training.feed import TrainingBatch
from facetric.training.session import Session


@dataclass(frozen=True, eq=False)
class Step:
    """What a step gave, over the global batch. Without a finite loss nothing was updated."""

    loss: float
    embeddings: Tensor  # (m, d)
    labels: Tensor  # (m,)

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.loss)


def take_step(session: Session, batch: TrainingBatch, *, clip_norm: float | None, clock: StepClock) -> Step:
    """Train on one batch; all processes together."""
    fabric, processes = session.fabric, session.processes
    with clock.part("network"):
        session.optimizer.zero_grad(set_to_none=True)
        embeddings: Tensor = session.network(fabric.to_device(batch.inputs))  # (m / n_processes, d)
    with clock.part("loss"):
        embeddings = processes.gather_rows(embeddings)  # (m, d)
        labels = processes.gather_rows(fabric.to_device(batch.labels))  # (m,)
        finite = math.isfinite(float(embeddings.detach().square().sum()))  # of distances too
        loss: Tensor | None = session.loss(embeddings, labels) if finite else None
        value = math.nan if loss is None else float(loss.detach())
    if loss is not None and math.isfinite(value):
        with clock.part("network"):
            fabric.backward(loss)
            if clip_norm is not None:
                fabric.clip_gradients(session.network, session.wrapped_optimizer, max_norm=clip_norm, error_if_nonfinite=False)
            session.wrapped_optimizer.step()
    return Step(value, embeddings.detach(), labels)
