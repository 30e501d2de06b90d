"""Where the time of a step goes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
