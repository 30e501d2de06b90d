"""The parts of a run, built from its configuration: images, network, cached activations, loss, optimizer."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from facetric.embedder import FITTED_KINDS, WHOLE, Network, build_network, cached_activations, check_fit, encode
from facetric.images import ImageDataset, ImageSource
from facetric.losses import ClassBalancedBatches, MarginDecay
from facetric.machine import blas_threads, numba_threads
from facetric.progress import steps_shown
from facetric.runs import RunTable, TrainConfig, new_images, size_and_pad
from facetric.training.feed import Feed, LabeledImages, split_images, training_transform
from facetric.training.processes import Processes, share_batch_norm
from facetric.training.step import LearningRates, build_decay, build_loss, build_optimizer
from facetric.training.validation import HeadRefit, Validator

_log = logging.getLogger("facetric")
# The others wait while the first process alone computes features for PCA or validates; torch's own limit is 30 minutes.
TIMEOUT = timedelta(hours=24)
_PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


class TrainedPart(nn.Module):
    """What a step runs: the whole embedder, or what comes after the cached activations. DDP wraps a forward, hence a module."""

    def __init__(self, embedder: Network, *, from_activations: bool) -> None:
        super().__init__()
        self.embedder = embedder
        self.from_activations = from_activations

    def forward(self, inputs: Tensor) -> Tensor:
        return self.embedder.from_activations(inputs) if self.from_activations else self.embedder(inputs)


@dataclass(eq=False)
class Session:
    """All that changes while a run trains."""

    config: TrainConfig
    fabric: Fabric
    processes: Processes
    embedder: Network
    network: Any  # TrainedPart as Fabric wraps it
    optimizer: Optimizer
    wrapped_optimizer: Any  # as Fabric wraps it
    rates: LearningRates
    loss: nn.Module
    decay: MarginDecay | None
    feed: Feed
    refit: HeadRefit | None
    validator: Validator | None  # of the first process

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain containers. To be called by all processes: each contributes its random state."""
        return {
            "embedder": self.embedder.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "feed": self.feed.state_dict(),
            "loss": self.loss.state_dict(),
            "random": self.processes.all_gather(_random_state(self.fabric.device)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.embedder.load_state_dict(state["embedder"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.fabric.strategy.precision.load_state_dict(state["precision"])
        if self.decay is not None:
            self.decay.load_state_dict({"n_steps": state["step"]})
        self.feed.load_state_dict(state["feed"])
        self.loss.load_state_dict(state["loss"])
        if len(state["random"]) == self.processes.n:  # otherwise the number of processes has changed: keep the fresh seeds
            _load_random_state(self.fabric.device, state["random"][self.processes.rank])


def start_fabric(run: RunTable) -> Fabric:
    """Devices, precision and, under torchrun or SLURM, the process group."""
    n_processes = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", n_processes))
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it logs every process
    strategy = DDPStrategy(timeout=TIMEOUT, **_no_buffers()) if n_processes > 1 else "auto"
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
    """Buffers are equal in all processes, or local: none is sent in a step. torch 2.15 renames the option."""
    known = inspect.signature(DistributedDataParallel).parameters
    return {"forward_sync_buffers": False} if "forward_sync_buffers" in known else {"broadcast_buffers": False}


@contextmanager
def torch_settings(*, threads: int) -> Iterator[None]:
    """torch configured for a run; threads, random generators and the deterministic mode are restored afterwards.

    NumPy's products, which closed-form heads are made of, take as many threads. Deterministic: the same sums in the same order
    every time, where torch can. Without it, equal runs may differ.
    """
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    n_threads, generator = torch.get_num_threads(), torch.get_rng_state()
    fabric_log = logging.getLogger("lightning_fabric")
    log_level = fabric_log.level
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    numba_threads()  # starts them: whoever did so during the run would change torch's number
    torch.set_num_threads(threads)
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False  # otherwise every new tensor is written twice: a fifth of a step
    try:
        with blas_threads(threads):
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        memory.fill_uninitialized_memory = filled
        torch.set_num_threads(n_threads)
        torch.set_rng_state(generator)
        fabric_log.setLevel(log_level)
        if devices is not None:
            torch.cuda.set_rng_state_all(devices)


def _random_state(device: torch.device) -> dict[str, Tensor]:
    """Dropout and the like draw from torch's own generators. Everything else in facetric has a generator of its own."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def _load_random_state(device: torch.device, state: dict[str, Tensor]) -> None:
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


@dataclass(frozen=True, eq=False)
class Plan:
    """The parts that a configuration asks for, validated."""

    training: LabeledImages
    held_out: LabeledImages | None
    embedder: Network
    sampler: ClassBalancedBatches
    loss: nn.Module


def make_plan(config: TrainConfig, dataset: ImageDataset, fabric: Fabric, processes: Processes) -> Plan:
    """Build and validate the parts; no communication between processes."""
    run, (size, pad) = config.run, size_and_pad(config.data)
    embedder = build_network(
        config.model.backbone,
        dim=config.model.dim,
        weights=config.model.weights,
        image_size=config.model.image_size,
        size=size,
        pad=pad,
        normalize=bool(config.loss.normalize),
        freeze_through=config.model.freeze_through,
        normalize_features=config.model.head_init == "whitened",
        pooling=config.model.pooling,
        seed=run.seed,
    )
    if not isinstance(dataset.images, np.ndarray) and embedder.preprocessing.channels != 3:
        raise ValueError(
            f"photos are read in color; the backbone {embedder.name} takes {embedder.preprocessing.channels} channel: "
            "choose another (--set model.backbone=tf_efficientnet_lite0)"
        )
    training, held_out = split_images(dataset, config.data, validate=run.validate_every > 0)
    if config.model.head_refit or config.model.head_init == "whitened":
        check_fit(embedder.n_features, training.labels, config.model.dim)
    loss = build_loss(config.loss, seed=run.seed, dim=config.model.dim, n_classes=training.n_classes, processes=processes)
    sampler = ClassBalancedBatches(
        training.labels,
        batch_size=config.batches.size,
        class_ratio=config.batches.class_ratio,
        images_per_class=config.batches.images_per_class,
        n_batches=max(run.steps, 1),  # the whole run is one pass, so that nothing stops and starts in between
        seed=run.seed,
        rank=processes.rank,
        world_size=processes.n,
    )
    fabric.to_device(embedder)
    return Plan(training, held_out, embedder, sampler, loss)


def build_session(
    config: TrainConfig, plan: Plan, fabric: Fabric, processes: Processes, *, fresh: bool, one_cache: bool = False
) -> Session:
    """The long work before the first step, and the setup with Fabric. All processes call it together.

    `one_cache`: activations of held-out images are kept with those of the training images, where these have central crops.
    """
    run, embedder = config.run, plan.embedder
    with processes.fail_together():
        torch.manual_seed(run.seed + processes.rank)  # dropout; everything else has a seed of its own
        source, transform = _source(config, plan, plan.training), training_transform(config.data, embedder.preprocessing)
        if fresh and processes.is_first:  # DDP hands the first process's weights to the others
            _initialize_head(config, plan, source)
        feed = Feed(source, plan.training.labels, plan.sampler, transform, n_threads=config.data.threads)
        validator = _validator(config, plan, one_cache=one_cache) if processes.is_first else None
    if processes.n > 1 and not embedder.freeze_batchnorm and (others := share_batch_norm(embedder)):
        _log.warning("%d batch norms (%s, …) keep statistics per process: N processes will not equal one", len(others), others[0])
    rates = config.optimizer
    groups = embedder.parameter_groups(rates.backbone_lr, rates.head_lr, rates.weight_decay)
    if own := list(fabric.to_device(plan.loss).parameters()):  # proxies: every process has the gradient of the global batch
        groups.append({"name": "loss", "params": own, "lr": rates.loss_lr, "weight_decay": 0.0})
    optimizer = build_optimizer(groups, rates)
    part = TrainedPart(embedder, from_activations=source.starts_at == "activations")
    network, wrapped = fabric.setup(part, optimizer)
    return Session(
        config=config,
        fabric=fabric,
        processes=processes,
        embedder=embedder,
        network=network,
        optimizer=optimizer,
        wrapped_optimizer=wrapped,
        rates=LearningRates(optimizer, rates, n_steps=run.steps),
        loss=plan.loss,
        decay=build_decay(plan.loss, config.loss, steps_per_pass=max(1, len(plan.training) // config.batches.size)),
        feed=feed,
        refit=_refit(config, plan, source),
        validator=validator,
    )


def prepare_runs(configs: Sequence[TrainConfig]) -> None:
    """Refuse what no run could begin with, and build the images and activations that all of these runs on one dataset share."""
    first = configs[0]
    fabric = start_fabric(first.run)
    dataset = new_images(first.data, validate=first.run.validate_every > 0)
    for config in configs[1:]:
        make_plan(config, dataset, fabric, Processes(fabric.device))
    plan = make_plan(first, dataset, fabric, Processes(fabric.device))
    for split in (plan.training, plan.held_out):  # runs with other validation classes, or none, find all of them
        if split is not None:
            _source(first, plan, split)


def _source(config: TrainConfig, plan: Plan, split: LabeledImages) -> ImageSource:
    """The images, or where views are cached their activations behind the frozen part. A refitted head sees central crops."""
    if config.model.cached_views == 0:
        return split.images
    views_are_central = config.data.augment == "none"
    activations = cached_activations(
        plan.embedder,
        split.images,
        n_views=config.model.cached_views,
        seed=config.model.views_seed,
        center=config.model.head_refit and not views_are_central,
        transform=training_transform(config.data, plan.embedder.preprocessing),
    )
    if views_are_central:
        activations.central = 0
    return activations


def _refit(config: TrainConfig, plan: Plan, source: ImageSource) -> HeadRefit | None:
    """Called while the backbone still has its pretrained weights."""
    if not config.model.head_refit:
        return None
    pretrained = {}
    if plan.embedder.freeze_through != WHOLE:
        pretrained = {name: tensor.detach().clone() for name, tensor in plan.embedder.backbone.state_dict().items()}
    return HeadRefit(source, plan.training.labels, pretrained, config.model.pretrained_fraction)


def _initialize_head(config: TrainConfig, plan: Plan, source: ImageSource) -> None:
    kind, features = config.model.head_init, None
    if kind in FITTED_KINDS:
        with steps_shown() as progress:
            features = encode(plan.embedder, source, what="features", step="features", progress=progress)
    plan.embedder.initialize_head(features, kind=kind, seed=config.run.seed, labels=plan.training.labels)
    with torch.no_grad():
        for weights in plan.embedder.head.parameters():
            weights.mul_(config.model.head_scale)


def _validator(config: TrainConfig, plan: Plan, *, one_cache: bool) -> Validator | None:
    """With a frozen part, the held-out images go through it once too, whether or not the training views are cached."""
    if plan.held_out is None:
        return None
    source = _source(config, plan, plan.held_out) if one_cache else plan.held_out.images
    if getattr(source, "central", None) is None and config.model.freeze_through is not None:
        source = cached_activations(plan.embedder, plan.held_out.images, n_views=0, center=True)
    return Validator(source, plan.held_out.labels, seed=config.run.seed)
