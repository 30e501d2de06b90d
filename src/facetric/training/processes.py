"""The processes of a run, acting as one: a global batch, one inference, and a common exit.

`losses/global_batch.py` explains the gradient of the global batch. Batch normalization over the global batch is here, because
torch's SyncBatchNorm works on GPUs only, and so are the signals that ask a run to stop after its step.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from facetric.losses import PeerError, broadcast, gather_rows

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
        return make() if self.n == 1 else broadcast(make, device=self.device)

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
        messages = self.all_gather(failure and (str(failure) or type(failure).__name__))
        if failure is not None:
            raise failure
        for rank, message in enumerate(messages):
            if message is not None:
                raise PeerError(f"rank {rank}: {message}")


class _SumOverProcesses(torch.autograd.Function):
    """The sum of all processes' values, in all of them."""

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


class GlobalBatchNorm2d(nn.BatchNorm2d):
    """nn.BatchNorm2d with the statistics of the global batch; all processes hold equally many images."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.running_mean is None or self.running_var is None or self.momentum is None:
            return super().forward(input)
        values = input.to(torch.promote_types(input.dtype, torch.float32))
        n = input.numel() // input.shape[1] * dist.get_world_size()
        mean: Tensor = _SumOverProcesses.apply(values.sum(dim=(0, 2, 3))) / n
        centered = values - mean[:, None, None]  # a second pass: the mean of squares minus the square of the mean loses digits
        variance: Tensor = _SumOverProcesses.apply(centered.square().sum(dim=(0, 2, 3))) / n
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * n / max(n - 1, 1), self.momentum)
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
        scale = torch.rsqrt(variance + self.eps) * self.weight
        return (centered * scale[:, None, None] + self.bias[:, None, None]).to(input.dtype)


def share_batch_norm(network: nn.Module) -> list[str]:
    """Turn every nn.BatchNorm2d into a shared one, in place. Returns the names of other kinds, which stay per process."""
    others = []
    for name, module in network.named_modules():
        if type(module) is nn.BatchNorm2d and module.affine:
            module.__class__ = GlobalBatchNorm2d  # the same tensors under the same names
        elif isinstance(module, nn.modules.batchnorm._BatchNorm):
            others.append(name)
    return others


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """While entered, remembers the first signal in `signal_number` (0 for none) instead of letting it end the process."""

    def __init__(self) -> None:
        self.signal_number = 0
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # only there may handlers be set
            self._before = {number: signal.signal(number, self._remember) for number in _SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.signal_number and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_number = self.signal_number or number
