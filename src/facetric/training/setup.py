"""Before the first step: the images, the network with its head, the cached activations, the loss, the optimiser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from lightning_fabric import Fabric
from torch import nn

from facetric.data import ClassBalancedBatches, ImageFormat
from facetric.models import Embedder, build_embedder
from facetric.training.activations import TrunkCache, build_trunk_cache, extract_features, image_format
from facetric.training.batch_norm import share_batch_norm
from facetric.training.config import TrainConfig
from facetric.training.feed import CachedFeed, Feed, LiveFeed, Split, build_sampler, load_splits, training_transform
from facetric.training.optimisers import LearningRates, build_optimiser
from facetric.training.processes import Processes
from facetric.training.session import Session, TrainedPart, build_decay, build_loss, start_fabric
from facetric.training.validation import Validator


@dataclass(frozen=True, eq=False)
class Plan:
    """What a configuration asks for, found to be possible."""

    training: Split
    held_out: Split | None
    embedder: Embedder
    format: ImageFormat
    sampler: ClassBalancedBatches
    loss: nn.Module


def make_plan(config: TrainConfig, fabric: Fabric, processes: Processes) -> Plan:
    """The parts that may turn out to be impossible; no communication between processes."""
    run = config.run
    training, held_out = load_splits(config.data, validate=run.validate_every > 0)
    loss = build_loss(config.loss, seed=run.seed, dim=config.model.dim, n_classes=training.n_classes, processes=processes)
    sampler = build_sampler(
        training, config.batches, n_steps=run.steps, seed=run.seed, rank=processes.rank, world_size=processes.n
    )
    embedder = build_embedder(
        config.model.backbone,
        dim=config.model.dim,
        weights=config.model.weights,
        normalize=bool(config.loss.normalize),
        freeze_through=config.model.freeze_through,
        seed=run.seed,
    )
    fabric.to_device(embedder)
    form = image_format(embedder, training.images)
    return Plan(training, held_out, embedder, form, sampler, loss)


def build_session(
    config: TrainConfig, plan: Plan, fabric: Fabric, processes: Processes, *, fresh: bool, say: Callable[[str], None]
) -> tuple[Session, Validator | None]:
    """The long work before the first step, and everything in the hands of Fabric. All processes call it together."""
    run, embedder = config.run, plan.embedder
    with processes.phase():
        torch.manual_seed(run.seed + processes.rank)  # dropout; everything else has a seed of its own
        cache = _trunk_cache(config, plan, say)
        if fresh and processes.is_first:  # DDP hands the first process's weights to the others
            _initialise_head(config, plan, cache)
        feed = _feed(config, plan, cache)
        validator = _validator(config, plan, say) if processes.is_first else None
    if processes.n > 1 and not embedder.freeze_batchnorm and (others := share_batch_norm(embedder, n_processes=processes.n)):
        say(f"{len(others)} batch norms ({others[0]}, …) keep statistics per process: N processes will not equal one")
    rates = config.optimiser
    groups = embedder.parameter_groups(rates.backbone_lr, rates.head_lr, rates.weight_decay)
    if own := list(fabric.to_device(plan.loss).parameters()):  # proxies: every process has the gradient of the global batch
        groups.append({"name": "loss", "params": own, "lr": rates.loss_lr, "weight_decay": 0.0})
    optimiser = build_optimiser(groups, rates)
    network, wrapped = fabric.setup(TrainedPart(embedder, from_activations=config.model.cached_views > 0), optimiser)
    session = Session(
        fabric=fabric,
        processes=processes,
        embedder=embedder,
        network=network,
        optimiser=optimiser,
        wrapped_optimiser=wrapped,
        rates=LearningRates(optimiser, rates, n_steps=run.steps),
        loss=plan.loss,
        decay=build_decay(plan.loss, config.loss, steps_per_pass=max(1, len(plan.training) // config.batches.size)),
        feed=feed,
    )
    return session, validator


def prepare_caches(config: TrainConfig, say: Callable[[str], None]) -> None:
    """The prepared images, and the activations that runs like this one train from: for who starts several at once."""
    fabric = start_fabric(config.run)
    plan = make_plan(config, fabric, Processes(fabric.device))
    _trunk_cache(config, plan, say)


def _trunk_cache(config: TrainConfig, plan: Plan, say: Callable[[str], None]) -> TrunkCache | None:
    """The training images after the frozen part, in every cached view. Processes on one machine share the file.

    Views of the validation classes are kept too, so that runs with other validation classes, or none, find the same file.
    """
    if config.model.cached_views == 0:
        return None
    return build_trunk_cache(
        plan.embedder,
        plan.training.half,
        n_views=config.model.cached_views,
        seed=config.model.views_seed,
        transform=training_transform(config.data, plan.format),
        announce=say,
    ).take(plan.training.rows)


def _initialise_head(config: TrainConfig, plan: Plan, cache: TrunkCache | None) -> None:
    kind, features = config.model.head_init, None
    if kind == "pca":
        features = extract_features(plan.embedder, plan.training.images if cache is None else cache, form=plan.format)
    plan.embedder.initialise_head(features, kind=kind, seed=config.run.seed)
    with torch.no_grad():
        for weights in plan.embedder.head.parameters():
            weights.mul_(config.model.head_scale)


def _feed(config: TrainConfig, plan: Plan, cache: TrunkCache | None) -> Feed:
    if cache is not None:
        return CachedFeed(plan.training, plan.sampler, cache)
    transform = training_transform(config.data, plan.format)
    return LiveFeed(plan.training, plan.sampler, transform, n_threads=config.data.threads)


def _validator(config: TrainConfig, plan: Plan, say: Callable[[str], None]) -> Validator | None:
    """With a frozen part, the held-out images go through it once too, whether or not the training views are cached."""
    if plan.held_out is None:
        return None
    cache = None
    if config.model.freeze_through is not None:
        cache = build_trunk_cache(plan.embedder, plan.held_out.images, n_views=0, centre=True, announce=say)
    return Validator(plan.held_out, cache=cache, seed=config.run.seed)
