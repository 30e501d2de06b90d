"""Training in memory: some classes train, others are held out, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from facetric.embedder import Network
from facetric.images import ImageDataset
from facetric.runs import TrainConfig
from facetric.training.processes import Processes
from facetric.training.refit import HeadRefit
from facetric.training.session import Plan, Session, build_session, make_plan, start_fabric
from facetric.training.step import StepClock, take_step
from facetric.training.validation import Validator


@dataclass(frozen=True, eq=False)
class Trained:
    """A network after its last step, with the held-out images to score it on."""

    session: Session
    plan: Plan
    validator: Validator
    n_steps: int

    def embed(self, embedder: Network | None = None) -> NDArray[np.float32]:
        """The held-out images (n, d), with the trained network or another."""
        return self.validator.embed(self.session.embedder if embedder is None else embedder)

    def refitted(self, *, pretrained_fraction: float) -> Network:
        """The network as `model.head_refit` and `model.pretrained_fraction` would save it."""
        refit = self.session.refit
        assert isinstance(refit, HeadRefit)
        return refit.with_fraction(pretrained_fraction)(self.session.embedder)


def train_in_memory(
    config: TrainConfig,
    dataset: ImageDataset,
    *,
    stopped: Callable[[], bool] = lambda: False,
    on_step: Callable[[int, Network], None] = lambda step, embedder: None,
) -> Trained | None:
    """Train on the training split of `dataset`, with its validation split held out; one process.

    None where the loss became non-finite or `stopped` said so.
    """
    config = config.model_copy(update={"run": config.run.model_copy(update={"validate_every": max(config.run.steps, 1)})})
    fabric = start_fabric(config.run)
    processes = Processes(fabric.device)
    plan = make_plan(config, dataset, fabric, processes)
    session, validator = build_session(config, plan, fabric, processes, fresh=True, one_cache=True)
    assert validator is not None
    session.embedder.train()
    clock, batches = StepClock(fabric.device), iter(session.feed)
    for step in range(1, config.run.steps + 1):
        if stopped():
            return None
        session.rates.set(step)
        if not take_step(session, next(batches), clip_norm=config.optimizer.clip_norm, clock=clock).is_finite:
            return None
        if session.decay is not None:
            session.decay.step()
        on_step(step, session.embedder)
    return Trained(session, plan, validator, config.run.steps)


def hold_out(dataset: ImageDataset, classes: NDArray[np.int64]) -> ImageDataset:
    """The dataset with these of its training classes as its validation split; what did not train before is left out of both."""
    trains, held_out = dataset.splits == "train", np.isin(dataset.labels, classes)
    return replace(dataset, splits=np.where(trains, np.where(held_out, "validation", "train"), "test"))
