"""The parts of a run, built from its configuration: images, network, cached activations, loss, optimizer."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from facetric.embedder import WHOLE, Network, build_network, cached_activations, check_fit, encode
from facetric.images import ImageDataset, ImageSource
from facetric.losses import ClassBalancedBatches, MarginDecay
from facetric.machine import blas_threads, numba_threads
from facetric.metrics import Metric
from facetric.progress import steps_shown
from facetric.runs import DivergedError, RunTable, TrainConfig, new_images
from facetric.training.feed import Feed, LabeledImages, split_images, training_transform
from facetric.training.processes import Processes, share_batch_norm
from facetric.training.step import LearningRates, build_loss, build_optimizer, parameter_groups
from facetric.training.validation import CALMER, refuse_bad_embeddings

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


class Session:
    """The parts of a run and all that changes while it trains: made and validated here, without long work; `start` does that."""

    network: Any  # TrainedPart as Fabric wraps it, and the optimizer too
    optimizer: Optimizer
    wrapped_optimizer: Any
    rates: LearningRates
    feed: Feed
    validation: ImageSource | None  # held-out images, or their activations; of the first process
    pretrained: dict[str, Tensor]  # the backbone before training, for `model.head_refit`; empty where it does not train

    def __init__(self, config: TrainConfig, dataset: ImageDataset, fabric: Fabric, processes: Processes) -> None:
        self.config, self.fabric, self.processes = config, fabric, processes
        self.metric: Metric = "cosine" if config.loss.normalize else "euclidean"
        run, model = config.run, config.model
        self.embedder = network_of(config)
        if not isinstance(dataset.images, np.ndarray) and self.embedder.preprocessing.channels != 3:
            raise ValueError(
                f"photos are read in color; the backbone {self.embedder.name} takes {self.embedder.preprocessing.channels} "
                "channel: choose another (--set model.backbone=tf_efficientnet_lite0)"
            )
        self.training, self.held_out = split_images(dataset, config.data, validate=run.validate_every > 0)
        if model.head_refit or model.head_init == "whitened":
            check_fit(self.embedder.n_features, self.training.labels, model.dim)
        n_classes = self.training.n_classes
        self.loss = build_loss(config.loss, seed=run.seed, dim=model.dim, n_classes=n_classes, processes=processes)
        try:
            self.batches = ClassBalancedBatches(
                self.training.labels,
                batch_size=config.batches.size,
                class_ratio=config.batches.class_ratio,
                images_per_class=config.batches.images_per_class,
                n_batches=max(run.steps, 1),  # the whole run is one pass, so that nothing stops and starts in between
                seed=run.seed,
                rank=processes.rank,
                world_size=processes.n,
            )
        except ValueError as error:
            settings = "--set batches.size=…, batches.class_ratio=… or batches.images_per_class=…"
            raise ValueError(f"{error} ({settings})") from None
        fabric.to_device(self.embedder)

    def start(self, *, fresh: bool, one_cache: bool = False) -> None:
        """The long work before the first step, and the setup with Fabric. All processes call it together.

        `one_cache`: activations of held-out images are kept with those of the training images, where these have central crops.
        """
        config, embedder = self.config, self.embedder
        with self.processes.fail_together():
            torch.manual_seed(config.run.seed + self.processes.rank)  # dropout; everything else has a seed of its own
            source = self.source(self.training)
            transform = training_transform(config.data, embedder.preprocessing)
            if fresh and self.processes.is_first:  # DDP hands the first process's weights to the others
                self.embedder = embedder = self._with_first_head(source)
            self.feed = Feed(source, self.training.labels, self.batches, transform, n_threads=config.data.threads)
            self.validation = self._validation(one_cache=one_cache) if self.processes.is_first else None
        self.pretrained = {}
        if config.model.head_refit and embedder.freeze_through != WHOLE:
            self.pretrained = {name: tensor.detach().clone() for name, tensor in embedder.backbone.state_dict().items()}
        if self.processes.n > 1 and not embedder.freeze_batchnorm and (others := share_batch_norm(embedder)):
            _log.warning(
                "%d batch norms (%s, …) keep statistics per process: N processes will not equal one", len(others), others[0]
            )
        rates = config.optimizer
        groups = parameter_groups(embedder, rates)
        if own := list(self.fabric.to_device(self.loss).parameters()):  # proxies: all processes have the global gradient
            groups.append({"name": "loss", "params": own, "lr": rates.loss_lr, "weight_decay": 0.0})
        self.optimizer = build_optimizer(groups, rates)
        self.rates = LearningRates(self.optimizer, rates, n_steps=config.run.steps)
        part = TrainedPart(embedder, from_activations=source.starts_at == "activations")
        self.network, self.wrapped_optimizer = self.fabric.setup(part, self.optimizer)

    def schedule(self, step: int) -> None:
        """Learning rates and γ of this step: functions of the step alone."""
        self.rates.set(step)
        every = self.config.loss.margin_decay_every or max(MarginDecay.PAPER_PASS, len(self.training) // self.config.batches.size)
        MarginDecay.scale(self.loss, step - 1, every=every, rate=self.config.loss.margin_decay)

    def for_use(self, pretrained_fraction: float | None = None) -> Network:
        """The network to validate and save. With `model.head_refit` another one, which shares what it does not change:

        the closed-form head on the features that training has made, of central crops of the training images, and with a
        `pretrained_fraction` f (that of the configuration unless given) on the weights (1 − f)·trained + f·pretrained.
        """
        model, embedder = self.config.model, self.embedder
        if not model.head_refit:
            return embedder
        fraction = model.pretrained_fraction if pretrained_fraction is None else pretrained_fraction
        if self.pretrained and fraction:
            embedder = embedder.interpolated(self.pretrained, fraction)
        features = encode(embedder, self.feed.images, what="features")
        try:
            return embedder.with_head(features, self.training.labels)
        except ValueError:  # that there are enough images was checked before training
            raise DivergedError(
                "no head can be fitted to the features of the training images, which are not finite, or the same for all images "
                f"of a class: {CALMER}"
            ) from None

    def held_out_vectors(self, network: Network, *, step: int) -> NDArray[np.float32]:
        """The embeddings (n, d) of the held-out images, one center crop each; a DivergedError if they cannot be compared."""
        assert self.validation is not None
        vectors = encode(network, self.validation)
        refuse_bad_embeddings(vectors, step, metric=self.metric)
        return vectors

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
        self.feed.load_state_dict(state["feed"])
        self.loss.load_state_dict(state["loss"])
        if len(state["random"]) == self.processes.n:  # otherwise the number of processes has changed: keep the fresh seeds
            _load_random_state(self.fabric.device, state["random"][self.processes.rank])

    def source(self, split: LabeledImages) -> ImageSource:
        """The images, or where views are cached their activations behind the frozen part. A refitted head sees central crops."""
        model, data = self.config.model, self.config.data
        if model.cached_views == 0:
            return split.images
        if data.augment == "none":  # central crops are those of the evaluation, and in one cache with them
            return cached_activations(self.embedder, split.images, n_views=0, center=True)
        return cached_activations(
            self.embedder,
            split.images,
            n_views=model.cached_views,
            seed=model.views_seed,
            center=model.head_refit,
            transform=training_transform(data, self.embedder.preprocessing),
        )

    def _validation(self, *, one_cache: bool) -> ImageSource | None:
        """With a frozen part, the held-out images go through it once too, whether or not the training views are cached."""
        if self.held_out is None:
            return None
        source = self.source(self.held_out) if one_cache else self.held_out.images
        if getattr(source, "central", None) is None and self.config.model.freeze_through is not None:
            source = cached_activations(self.embedder, self.held_out.images, n_views=0, center=True)
        return source

    def _with_first_head(self, source: ImageSource) -> Network:
        model, features = self.config.model, None
        if model.head_init in ("pca", "whitened"):
            with steps_shown() as progress:
                features = encode(self.embedder, source, what="features", step="features", progress=progress)
        options: dict[str, Any] = {"kind": model.head_init, "seed": self.config.run.seed, "scale": model.head_scale}
        return self.embedder.with_head(features, self.training.labels, **options)


def network_of(config: TrainConfig) -> Network:
    """The network of a run before training, whose head is yet to be filled."""
    model, data = config.model, config.data
    return build_network(
        model.backbone,
        dim=model.dim,
        weights=model.weights,
        image_size=model.image_size,
        size=data.size,
        pad=data.pad,
        fit=data.fit,
        normalize=bool(config.loss.normalize),
        freeze_through=model.freeze_through,
        normalize_features=model.head_init == "whitened",
        pooling=model.pooling,
        seed=config.run.seed,
    )


def prepare_runs(configs: Sequence[TrainConfig]) -> None:
    """Refuse what no run could begin with, and build the images and activations that all of these runs on one dataset share."""
    first = configs[0]
    fabric = start_fabric(first.run)
    dataset = new_images(first.data, validate=first.run.validate_every > 0)
    for config in reversed(configs):  # one network at a time; that of the first stays
        session = Session(config, dataset, fabric, Processes(fabric.device))
    for split in (session.training, session.held_out):  # runs with other validation classes, or none, find all of them
        if split is not None:
            session.source(split)


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
    n_threads, fabric_log = torch.get_num_threads(), logging.getLogger("lightning_fabric")
    log_level = fabric_log.level
    numba_threads()  # starts them: whoever did so during the run would change torch's number
    torch.set_num_threads(threads)
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False  # otherwise every new tensor is written twice: a fifth of a step
    try:
        with blas_threads(threads), torch.random.fork_rng(range(torch.cuda.device_count())):
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        memory.fill_uninitialized_memory = filled
        torch.set_num_threads(n_threads)
        fabric_log.setLevel(log_level)


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
