"""What `run.choose_minutes` tries: networks as they are, and recipes up to fine-tuning; each trained and scored in memory."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facetric.embedder import WHOLE, Network, cached_activations
from facetric.images import ImageDataset
from facetric.metrics import retrieval_by_class
from facetric.runs import DivergedError, TrainConfig, batch_shape, parse_config
from facetric.training.processes import Processes
from facetric.training.session import Session, network_of, start_fabric
from facetric.training.step import StepClock, take_steps

PRETRAINED, CLOSED_FORM, HEAD = "pretrained features", "closed-form head", "trained head"
HALFWAY, FINE_TUNED = "halfway to fine-tuned", "fine-tuned"
HALFWAY_FRACTION = 0.5
_FEW = 8  # images by which a network's speed is judged, and as many for every thread

Tables = dict[str, dict[str, Any]]
ClassScores = dict[str, tuple[float, float]]  # class name → Recall@1, MAP@R
_log = logging.getLogger("facetric")


@dataclass(frozen=True)
class Candidate:
    """A recipe of a network, as the configuration of a run. Those of one `training` differ only in what is saved after it."""

    name: str
    network: str
    training: str
    config: TrainConfig
    n_features: int  # of the network

    @property
    def is_free(self) -> bool:
        """Whether nothing is trained."""
        return self.config.run.steps == 0


def candidates(config: TrainConfig, n_features: int, network: str = "") -> list[Candidate]:
    """From the simplest to the most elaborate; named after the `network` where several are compared."""
    frozen = {"freeze_through": WHOLE, "cached_views": 1, "head_refit": False, "pretrained_fraction": 0.0}
    central, untrained = {"augment": "none"}, {"steps": 0}
    as_it_is = {**frozen, "head_init": "orthogonal", "dim": n_features}
    whitened = {**frozen, "head_init": "whitened"}
    no_prefixes = {"nested": ()} if config.loss.nested and config.loss.nested[-1] >= n_features else {}
    found: list[tuple[str, str, Tables]] = [
        (PRETRAINED, PRETRAINED, {"run": untrained, "data": central, "model": as_it_is, "loss": no_prefixes}),
        (CLOSED_FORM, CLOSED_FORM, {"run": untrained, "data": central, "model": whitened}),
        (HEAD, HEAD, {"data": central, "model": whitened}),
    ]
    if config.model.freeze_through != WHOLE:
        tuned = {"head_init": "whitened", "head_refit": True}
        for name, fraction in ((HALFWAY, HALFWAY_FRACTION), (FINE_TUNED, 0.0)):
            found.append((name, FINE_TUNED, {"model": {**tuned, "pretrained_fraction": fraction}}))
    title = f"{network}: {{}}" if network else "{}"
    return [
        Candidate(title.format(name), network, title.format(training), with_settings(config, settings), n_features)
        for name, training, settings in found
    ]


def with_settings(config: TrainConfig, settings: Tables) -> TrainConfig:
    """The configuration with these keys changed; None drops one."""
    tables = {name: {**table, **settings.get(name, {})} for name, table in config.model_dump().items()}
    return parse_config({name: {k: v for k, v in table.items() if v is not None} for name, table in tables.items()})


def group_scores(group: Sequence[Candidate], part: ImageDataset, *, stopped: Callable[[], bool]) -> dict[str, ClassScores]:
    """Train once and score every candidate of the group; empty where that was stopped or diverged."""
    config = group[-1].config
    settings: Tables = {"batches": fitting_batches(config, part)}
    if (getattr(config.loss, "subset_size", None) or 0) > settings["batches"].get("size", config.batches.size):
        settings["loss"] = {"subset_size": None}
    recipe_config = with_settings(config, settings)
    n_images = int((part.splits == "train").sum())
    if n_images <= recipe_config.model.dim != group[-1].n_features:  # fewer images than in the run span fewer directions
        recipe_config = with_settings(recipe_config, {"model": {"dim": n_images - 1}, "loss": {"nested": ()}})
    trained = train_in_memory(recipe_config, part, stopped=stopped)
    found: dict[str, ClassScores] = {}
    for recipe in () if trained is None else group:
        try:
            found[recipe.name] = _class_scores(trained, recipe, part)  # type: ignore[arg-type]
        except DivergedError:
            if recipe_config.run.steps == 0:
                raise
            _log.warning("%s has diverged on a half of the classes and counts for nothing there", recipe.name)
    if trained is not None and trained.config.run.steps:
        del trained
        gc.collect()
    return found


def _class_scores(session: Session, recipe: Candidate, part: ImageDataset) -> ClassScores:
    network = session.for_use(recipe.config.model.pretrained_fraction)
    vectors = session.held_out_vectors(network, step=session.config.run.steps)
    found = retrieval_by_class(vectors, part.labels[part.splits == "validation"], metric=session.metric)
    rows = zip(found.classes, found.recall_at_1, found.map_at_r, strict=True)
    return {part.class_names[label]: (float(recall), float(precision)) for label, recall, precision in rows}


def embedding_seconds(candidate: Candidate, dataset: ImageDataset) -> float:
    """How long the network would take for all training images, by what it takes for a few; what is cached takes no time."""
    config = candidate.config
    training = np.flatnonzero(dataset.splits == "train")
    order = np.random.default_rng(0).permutation(training)
    network = network_of(config)
    start_fabric(config.run).to_device(network)
    few, seconds = order[:_FEW], []
    for rows in (few, order[_FEW : _FEW * (2 + (config.run.threads or 1))]):  # the second starts as slowly, and has more to do
        start = time.monotonic()
        if len(rows):
            images = dataset.take(rows).prepared("train", size=config.data.size, fit=config.data.fit)
            cached_activations(network, images, n_views=0, center=True)
        seconds.append(time.monotonic() - start)
    n_more = min(len(order), _FEW * (2 + (config.run.threads or 1))) - 2 * len(few)
    return max(0.0, seconds[1] - seconds[0]) / n_more * len(order) if n_more > 0 else sum(seconds)


def train_in_memory(
    config: TrainConfig,
    dataset: ImageDataset,
    *,
    stopped: Callable[[], bool] = lambda: False,
    on_step: Callable[[int, Network], None] = lambda step, embedder: None,
) -> Session | None:
    """Train on the training split of `dataset`, with its validation split held out; one process, and nothing is written.

    None where the loss became non-finite or `stopped` said so.
    """
    config = with_settings(config, {"run": {"validate_every": max(config.run.steps, 1)}})
    fabric = start_fabric(config.run)
    session = Session(config, dataset, fabric, Processes(fabric.device))
    session.start(fresh=True, one_cache=True)
    for done in take_steps(session, StepClock(fabric.device)):
        if stopped() or not done.is_finite:
            return None
        on_step(done.number, session.embedder)
    return session


def hold_out(dataset: ImageDataset, classes: NDArray[np.int64]) -> ImageDataset:
    """The dataset with these of its training classes as its validation split; what did not train before is left out of both."""
    trains, held_out = dataset.splits == "train", np.isin(dataset.labels, classes)
    return replace(dataset, splits=np.where(trains, np.where(held_out, "validation", "train"), "test"))


def fitting_batches(config: TrainConfig, part: ImageDataset) -> dict[str, Any]:
    """The composition of batches, or a smaller one where half of the classes cannot fill it."""
    sizes = np.bincount(part.labels[part.splits == "train"])
    sizes = np.sort(sizes[sizes > 0])
    size, per_class = config.batches.size, config.batches.images_per_class
    if per_class is not None and (sizes >= per_class).sum() >= 2:
        return {"size": min(size, int((sizes >= per_class).sum()) * per_class)}
    n_classes = round((config.batches.class_ratio or 0.25) * size)
    if per_class is None and n_classes <= len(sizes) and sizes[-n_classes:].sum() >= size:
        return {}
    size, n_classes = batch_shape(sizes.tolist())
    return {"size": size, "class_ratio": round(n_classes / size, 4), "images_per_class": None}
