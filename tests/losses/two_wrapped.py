"""What one of two processes does in the tests of the wrappers."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from pytorch_metric_learning.utils.distributed import DistributedLossWrapper
from safetensors.torch import save_file
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from facetric.losses import FacilityLocationLoss, for_pytorch_metric_learning


def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(24, 6, generator=generator, dtype=torch.float64), torch.arange(24) % 6


def network():
    torch.manual_seed(0)
    return nn.Linear(6, 4).double()


def wrapped_gradients(loss, images, labels, wrap=lambda network: network):
    """The gradient of the network's weights."""
    embed = wrap(network())
    loss(embed(images), labels).backward()
    return next(embed.parameters()).grad


def main(folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    images, labels = batch()
    mine = slice(12 * dist.get_rank(), 12 * dist.get_rank() + 12)
    found = {}
    for efficient in (False, True):
        loss = DistributedLossWrapper(for_pytorch_metric_learning(FacilityLocationLoss()), efficient=efficient)
        found[f"efficient {efficient}"] = wrapped_gradients(loss, images[mine], labels[mine], DistributedDataParallel)
    save_file(found, Path(folder) / f"{dist.get_rank()}.safetensors")
    dist.destroy_process_group()
