"""The processes of a run, acting as one: a global batch, one inference, and a common exit.

`losses/global_batch.py` explains the gradient of the global batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from facetric.losses import PeerError, broadcast, gather_rows, message_of

Result = TypeVar("Result")


class Processes:
    """One process or the default process group of torch.distributed, whichever there is."""

    def __init__(self, device: torch.device) -> None:
        together = dist.is_available() and dist.is_initialized()
        self.device = device
        self.rank = dist.get_rank() if together else 0
        self.n = dist.get_world_size() if together else 1

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def gather_rows(self, rows: Tensor) -> Tensor:
        """The rows of all processes, in the order of ranks, with the gradient that DDP's average turns into the true one."""
        return rows if self.n == 1 else gather_rows(rows, [len(rows)] * self.n)

    def broadcast(self, make: Callable[[], Result]) -> Result:
        """The result of `make` in the first process, in all of them. If it fails there, all fail."""
        return broadcast(make, device=self.device)

    def all_gather(self, value: Result) -> list[Result]:
        """The value of every process, in the order of ranks."""
        if self.n == 1:
            return [value]
        box: list[Any] = [None] * self.n
        dist.all_gather_object(box, value)
        return box

    def maximum(self, number: int) -> int:
        """The largest of the processes' numbers."""
        if self.n == 1:
            return number
        box = torch.tensor([number], device=self.device)
        dist.all_reduce(box, op=dist.ReduceOp.MAX)
        return int(box)

    @contextmanager
    def fail_together(self) -> Iterator[None]:
        """Work without communication that may fail in one process: then all of them stop, with its message, and none waits."""
        if self.n == 1:
            yield
            return
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
            failure = error
        if self.maximum(int(failure is not None)):
            messages = self.all_gather(None if failure is None else message_of(failure))
            if failure is not None:
                raise failure
            rank, message = next((rank, message) for rank, message in enumerate(messages) if message is not None)
            raise PeerError(f"rank {rank}: {message}")


class _SumOverProcesses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()  # every process's loss depends on every process's values
        dist.all_reduce(total)
        return total


def sum_over_processes(values: Tensor) -> Tensor:
    """The sum of all processes' values, in all of them, with gradient."""
    total: Tensor = _SumOverProcesses.apply(values)
    return total
