"""Training steps: batch, forward, loss of the global batch, backward, update; the loss, the optimizer, and where time goes."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from facetric.embedder import Network
from facetric.losses import FacilityLocationLoss
from facetric.runs import LossTable, OptimizerTable
from facetric.training.feed import TrainingBatch
from facetric.training.processes import Processes

if TYPE_CHECKING:
    from facetric.training.session import Session


@dataclass(frozen=True, eq=False)
class Step:
    """What a step gave, over the global batch. Without a finite loss nothing was updated."""

    number: int  # from 1
    loss: float
    embeddings: Tensor  # (m, d)
    labels: Tensor  # (m,)
    batch: TrainingBatch

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.loss)


def take_steps(session: Session, clock: StepClock, *, after: int = 0) -> Iterator[Step]:
    """Train on, from the step after this one to the last of the run; all processes together."""
    fabric, processes, clip_norm = session.fabric, session.processes, session.config.optimizer.clip_norm
    batches = iter(session.feed)
    for number in range(after + 1, session.config.run.steps + 1):
        with processes.fail_together(), clock.part("sampler"):
            batch = next(batches)
        with clock.part("network"):
            session.schedule(number)
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
                    wrapped = session.network, session.wrapped_optimizer
                    fabric.clip_gradients(*wrapped, max_norm=clip_norm, error_if_nonfinite=False)
                session.wrapped_optimizer.step()
        yield Step(number, value, embeddings.detach(), labels, batch)


class StepClock:
    """Seconds per part of the step ("sampler", "network", "loss", "logging") since the last row of metrics.jsonl.

    "sampler" is the time that a step waits for its batch; batches are made ahead. What is not measured (validation,
    checkpoints) does not count.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Measure the block. On a GPU this synchronizes: the loss needs the embeddings on the host anyway."""
        start = time.perf_counter()
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._seconds[name] += time.perf_counter() - start

    def row(self, *, n_steps: int, batch_size: int) -> dict[str, float]:
        """The averages over `n_steps` steps; resets the clock."""
        total = sum(self._seconds.values())
        fractions = {name: self._seconds[name] / total for name in ("sampler", "loss", "logging")}
        self._seconds.clear()
        return {
            "images_per_second": n_steps * batch_size / total,
            "step_seconds": total / n_steps,
            **{f"{name}_fraction": fraction for name, fraction in fractions.items()},
            "overhead_fraction": sum(fractions.values()),
        }


def build_loss(config: LossTable, *, seed: int, dim: int, n_classes: int, processes: Processes) -> nn.Module:
    """The loss of the configuration; the solver runs in the first process and hands its medoids to the others."""
    loss = config.build(dim=dim, n_classes=n_classes, seed=seed)
    for part in loss.modules() if processes.n > 1 else ():
        if isinstance(part, FacilityLocationLoss):
            part.share = processes.broadcast
    return loss


def parameter_groups(embedder: Network, rates: OptimizerTable) -> list[dict[str, Any]]:
    """What an optimizer takes: trainable parameters only, no weight decay on norms and biases, no empty group."""
    groups = []
    for name, module, rate in (("backbone", embedder.backbone, rates.backbone_lr), ("head", embedder.head, rates.head_lr)):
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        decayed = [parameter for parameter in trained if parameter.ndim > 1]
        others = [parameter for parameter in trained if parameter.ndim <= 1]  # norms and biases are vectors
        groups.append({"name": name, "params": decayed, "lr": rate, "weight_decay": rates.weight_decay})
        groups.append({"name": f"{name}_no_decay", "params": others, "lr": rate, "weight_decay": 0.0})
    return [group for group in groups if group["params"]]


def build_optimizer(groups: list[dict[str, Any]], config: OptimizerTable) -> Optimizer:
    if config.name == "rmsprop":  # TensorFlow's 0.9, which the paper used; torch's 0.99 starts with steps ten times too long
        return torch.optim.RMSprop(groups, alpha=0.9)
    return torch.optim.AdamW(groups)


class LearningRates:
    """Every group's rate as a function of the step alone: linear warm-up, then constant, or half a cosine down to 0."""

    def __init__(self, optimizer: Optimizer, config: OptimizerTable, *, n_steps: int) -> None:
        self.optimizer, self.config, self.n_steps = optimizer, config, n_steps
        self.initial = [float(group["lr"]) for group in optimizer.param_groups]

    def factor(self, step: int) -> float:
        """What the rates are multiplied by in step `step`, counted from 1."""
        warmup = self.config.warmup_steps
        if step <= warmup:
            return step / (warmup + 1)
        if self.config.schedule == "constant":
            return 1.0
        return 0.5 * (1.0 + math.cos(math.pi * (step - 1 - warmup) / (self.n_steps - warmup)))

    def set(self, step: int) -> None:
        """Set the rates of this step."""
        for group, rate in zip(self.optimizer.param_groups, self.initial, strict=True):
            group["lr"] = rate * self.factor(step)
