"""The parts of a run, built from its configuration: network, loss, optimiser and schedules, and their state."""

from __future__ import annotations

import inspect
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from facetric.losses import LOSSES, FacilityLocationLoss, MarginDecay, SubsampledLoss
from facetric.losses.external import external_loss, is_external
from facetric.models import Embedder
from facetric.training.config import LossTable, RunTable
from facetric.training.feed import Feed
from facetric.training.optimisers import LearningRates
from facetric.training.processes import Processes

_PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


class TrainedPart(nn.Module):
    """What a step runs: the whole embedder, or what comes after the cached activations. DDP wraps a forward, hence a module."""

    def __init__(self, embedder: Embedder, *, from_activations: bool) -> None:
        super().__init__()
        self.embedder = embedder
        self.from_activations = from_activations

    def forward(self, inputs: Tensor) -> Tensor:
        return self.embedder.from_activations(inputs) if self.from_activations else self.embedder(inputs)


@dataclass(eq=False)
class Session:
    """All that changes while a run trains."""

    fabric: Fabric
    processes: Processes
    embedder: Embedder
    network: Any  # TrainedPart as Fabric wraps it
    optimiser: Optimizer
    wrapped_optimiser: Any  # as Fabric wraps it
    rates: LearningRates
    loss: nn.Module
    decay: MarginDecay | None
    feed: Feed

    @property
    def clustering(self) -> FacilityLocationLoss | None:
        """The facility-location loss, if that is what trains."""
        inner = innermost(self.loss)
        return inner if isinstance(inner, FacilityLocationLoss) else None

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain containers. To be called by all processes: each contributes its random state."""
        return {
            "embedder": self.embedder.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "decay": None if self.decay is None else self.decay.state_dict(),
            "feed": self.feed.state_dict(),
            "loss": _loss_state(self.loss),
            "random": self.processes.all(_random_state(self.fabric.device)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.embedder.load_state_dict(state["embedder"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.fabric.strategy.precision.load_state_dict(state["precision"])
        if self.decay is not None:
            self.decay.load_state_dict(state["decay"])
        self.feed.load_state_dict(state["feed"])
        _load_loss_state(self.loss, state["loss"])
        if len(state["random"]) == self.processes.n:  # else the number of processes has changed, and the seeds stand
            _load_random_state(self.fabric.device, state["random"][self.processes.rank])


def start_fabric(run: RunTable) -> Fabric:
    """Devices, precision and, under torchrun or SLURM, the process group."""
    n_processes = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", n_processes))
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it announces every process
    strategy = DDPStrategy(**_no_buffers()) if n_processes > 1 else "auto"
    try:
        fabric = Fabric(
            accelerator=run.device,
            devices=local if n_processes > 1 else 1,
            num_nodes=max(1, n_processes // local),
            strategy=strategy,
            precision=_PRECISIONS[run.precision],  # type: ignore[arg-type]
        )
    except Exception as error:  # Fabric has no exception of its own for "no such device"
        raise ValueError(f"run.device = {run.device!r} cannot be used: {str(error).splitlines()[0]}: choose another") from error
    if run.precision == "fp16" and fabric.device.type != "cuda":
        raise ValueError(f"run.precision = 'fp16' needs a GPU, the device is {fabric.device}: use 'bf16' or '32'")
    fabric.launch()
    return fabric


def _no_buffers() -> dict[str, Any]:
    """Buffers are equal in all processes, or their own: none is sent in a step. torch 2.15 has a new word for it."""
    known = inspect.signature(DistributedDataParallel).parameters
    return {"forward_sync_buffers": False} if "forward_sync_buffers" in known else {"broadcast_buffers": False}


@contextmanager
def deterministic() -> Iterator[None]:
    """The same sums in the same order every time, where torch can: without it, equal runs on equal machines may differ."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False  # else every new tensor is written twice: a fifth of a step
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        memory.fill_uninitialized_memory = filled


def build_loss(config: LossTable, *, seed: int, dim: int, n_classes: int, processes: Processes) -> nn.Module:
    """The loss of the configuration; the solver runs in the first process and hands its medoids to the others."""
    if is_external(config.name):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # proxies and the like, equal in all processes
            return _averaged(external_loss(config.name, config.options, dim=dim, n_classes=n_classes), config, seed)
    kind = LOSSES[config.name]
    options = config.keywords()
    if "seed" in inspect.signature(kind).parameters:
        options["seed"] = seed
    loss = kind(**options)
    if isinstance(loss, FacilityLocationLoss) and processes.n > 1:
        loss.share = processes.from_first
    return _averaged(loss, config, seed)


def _averaged(loss: nn.Module, config: LossTable, seed: int) -> nn.Module:
    if config.n_subsets:
        return SubsampledLoss(loss, config.n_subsets, config.subset_size, seed=seed)
    return loss


def build_decay(loss: nn.Module, config: LossTable, *, steps_per_pass: int) -> MarginDecay | None:
    """The schedule of γ, for a loss that has one."""
    inner = innermost(loss)
    if not isinstance(inner, FacilityLocationLoss):
        return None
    return MarginDecay(inner, every=config.margin_decay_every or steps_per_pass, rate=config.margin_decay)


def innermost(loss: nn.Module) -> nn.Module:
    """The loss itself, without the averaging over subsets."""
    return loss.loss if isinstance(loss, SubsampledLoss) else loss


def _loss_state(loss: nn.Module) -> dict[str, Any]:
    inner = innermost(loss)
    state: dict[str, Any] = {"weights": inner.state_dict()}  # proxies and the like; ours have none
    if isinstance(loss, SubsampledLoss):
        state["subsets"] = loss.generator.get_state()
    if isinstance(inner, FacilityLocationLoss):
        state["solver"] = json.dumps(inner.rng.bit_generator.state)  # its integers have 128 bits
    return state


def _load_loss_state(loss: nn.Module, state: dict[str, Any]) -> None:
    inner = innermost(loss)
    inner.load_state_dict(state["weights"])
    if isinstance(loss, SubsampledLoss):
        loss.generator.set_state(state["subsets"])
    if isinstance(inner, FacilityLocationLoss):
        inner.rng.bit_generator.state = json.loads(state["solver"])


def _random_state(device: torch.device) -> dict[str, Tensor]:
    """Dropout and its kin draw from torch's own generators. Everything else in facetric has a generator of its own."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def _load_random_state(device: torch.device, state: dict[str, Tensor]) -> None:
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
