"""Batch normalization over the global batch of all processes, so that several processes train as one would.

torch's SyncBatchNorm does this on GPUs only; this one works wherever torch.distributed does.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from facetric.training.processes import sum_over_processes


class GlobalBatchNorm2d(nn.BatchNorm2d):
    """nn.BatchNorm2d with the statistics of the global batch; all processes hold equally many images."""

    n_processes: int = 1

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.running_mean is None or self.running_var is None or self.momentum is None:
            return super().forward(input)
        values = input.to(torch.promote_types(input.dtype, torch.float32))
        n = input.numel() // input.shape[1] * self.n_processes
        mean = sum_over_processes(values.sum(dim=(0, 2, 3))) / n
        centered = values - mean[:, None, None]  # a second pass: the mean of squares minus the square of the mean loses digits
        variance = sum_over_processes(centered.square().sum(dim=(0, 2, 3))) / n
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * n / max(n - 1, 1), self.momentum)
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
        scale = torch.rsqrt(variance + self.eps) * self.weight
        return (centered * scale[:, None, None] + self.bias[:, None, None]).to(input.dtype)


def share_batch_norm(network: nn.Module, *, n_processes: int) -> list[str]:
    """Replace every nn.BatchNorm2d in place, same tensors and names. Returns the names of other kinds, which stay per process."""
    others = []
    for parent_name, parent in list(network.named_modules()):
        for name, module in list(parent.named_children()):
            if type(module) is nn.BatchNorm2d and module.affine:
                setattr(parent, name, _shared(module, n_processes))
            elif isinstance(module, nn.modules.batchnorm._BatchNorm):
                others.append(f"{parent_name}.{name}".lstrip("."))
    return others


def _shared(module: nn.BatchNorm2d, n_processes: int) -> GlobalBatchNorm2d:
    shared = GlobalBatchNorm2d(module.num_features, module.eps, module.momentum)
    shared.n_processes = n_processes
    shared.weight, shared.bias = module.weight, module.bias
    shared.running_mean, shared.running_var = module.running_mean, module.running_var
    shared.num_batches_tracked = module.num_batches_tracked
    return shared.train(module.training)
