"""The optimizer, RMSprop (the paper's) or AdamW, and the learning-rate schedule."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.optim import Optimizer

from facetric.runs import OptimizerTable


def build_optimizer(groups: list[dict[str, Any]], config: OptimizerTable) -> Optimizer:
    """`groups` as Network.parameter_groups returns them, with their learning rates and weight decay."""
    if (
        config.name == "rmsprop"
    ):  # 0.9 is TensorFlow's decay, which the paper used; torch's 0.99 starts with steps ten times too long
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
