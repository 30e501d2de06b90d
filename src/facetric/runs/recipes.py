"""Settings for a run that names only its data: chosen by the dataset, its size and the machine, each with its reason."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from facetric.images import ImageDataset
from facetric.images.readers import load_dataset
from facetric.images.readers.load_dataset import BUILT_IN, READERS
from facetric.runs.config import TrainConfig
from facetric.runs.config_file import CONFIG_FILE, ConfigError, apply_override, apply_unset, parse_config
from facetric.runs.own_photos import BACKBONE, MOST_CACHE_BYTES, OWN, about_choice, options_for_testing, own_tables
from facetric.text import printable

# configs/glyphs.toml, here because an installed package has no configs/; a test keeps them equal.
GLYPHS: dict[str, dict[str, Any]] = {
    "run": {"name": "glyphs", "steps": 400, "validate_every": 100, "checkpoint_every": 100},
    "data": {"name": "glyphs", "pad": 2, "flip": False},
    "model": {"backbone": "glyphnet", "weights": "none", "head_init": "orthogonal"},
    "loss": {"name": "facility_location", "margin_weight": 64.0, "n_subsets": 16},
    "batches": {"size": 128, "class_ratio": 0.25},
    "optimizer": {
        "name": "adamw",
        "backbone_lr": 2e-3,
        "head_lr": 2e-3,
        "weight_decay": 1e-4,
        "warmup_steps": 20,
        "schedule": "cosine",
    },
}

FREEZE_THROUGH, VIEW_BYTES = "blocks.4", 43_904  # 112 × 14 × 14 float16
DIM = 64
MOST_IMAGES, MOST_CLASSES = 128, 32  # in a batch
CPU_PASSES, CPU_STEPS = 11, (100, 400)  # passes over the images, and the fewest and the most steps
GPU_PASSES, GPU_STEPS = 40, (200, 20_000)
VALIDATION_FRACTION, FEWEST_TO_VALIDATE = 0.2, 9  # images: validation scores Recall@8

PAPER_RATIOS = {"products": 0.75}  # C/m where it differs from that of CUB and Cars

Tables = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class ChosenRun:
    """A run that is ready to train, and a few lines that explain its settings."""

    config: TrainConfig
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Sizes:
    """What the choices depend on: the images of each training class, and what is set aside."""

    training: tuple[int, ...]  # images of each class that trains
    n_validation: int  # classes; 0 for no validation
    validation_fraction: float
    test: tuple[int, ...]

    @property
    def n_images(self) -> int:
        return sum(self.training)


def choose_run(
    data: str,
    root: str | os.PathLike[str] | None = None,
    *,
    overrides: Iterable[str] = (),
    unset: Iterable[str] = (),
    gpu: bool = False,
    choose: bool = True,
) -> ChosenRun:
    """A run on this dataset with settings that suit it. `gpu`: whether the machine has one.

    `choose`: whether the recipe for one's own photos may be chosen on their classes; a study gives all methods the same one.

    `unset` keys such as "model.cached_views" are dropped from the chosen settings, then `overrides` such as "run.steps=50" are
    set. A ConfigError or ValueError of one line when the dataset cannot be read or has too little to train on.
    """
    given: Tables = {"data": {"name": data} if root is None else {"name": data, "root": str(root)}}
    for override in overrides:
        apply_override(given, override)
    asked = parse_config({name: table for name, table in given.items() if name in {"run", "data"}})
    if asked.data.name == BUILT_IN:
        if asked.data.root is not None:
            load_dataset(BUILT_IN, asked.data.root)  # raises: it has no root
        config = parse_config(_merged(_without(_fitting(GLYPHS, given), unset), given))
        return ChosenRun(config, ("glyphs: a small network from scratch, as in configs/glyphs.toml",))
    if asked.data.name in READERS and asked.data.root is None:
        raise ConfigError(f"dataset {asked.data.name!r} is read from disk: pass its folder, as in --root path/to/it")
    gpu = gpu and asked.run.device in {"auto", "cuda"}
    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    chooses = (
        choose and asked.data.name in OWN and alone and not gpu and given.get("model", {}).get("backbone", BACKBONE) == BACKBONE
    )
    dataset = load_dataset(asked.data.name, asked.data.root, **asked.data.options)
    if chooses and asked.data.name == "folder" and "test_fraction" not in asked.data.options:
        given["data"].setdefault("options", {}).update(options_for_testing(dataset.n_classes))
        asked = parse_config({name: table for name, table in given.items() if name in {"run", "data"}})
        dataset = load_dataset(asked.data.name, asked.data.root, **asked.data.options)
    if chooses and "validate_every" not in asked.run.model_fields_set:
        asked = asked.model_copy(update={"run": asked.run.model_copy(update={"validate_every": 0})})
    sizes = _sizes(dataset, asked)
    batch = batch_shape(sizes.training, ratio=PAPER_RATIOS.get(asked.data.name), asked_size=given.get("batches", {}).get("size"))
    asked_dim = given.get("model", {}).get("dim")
    chosen = own_tables(sizes, batch, asked_dim=asked_dim) if chooses else _tables(sizes, batch, gpu=gpu)
    chosen["run"]["name"] = _run_name(asked)
    config = parse_config(_merged(_without(_fitting(chosen, given), unset), given))
    return ChosenRun(config, _reasons(config, dataset, sizes, gpu=gpu, validates=asked.run.validate_every > 0))


def _sizes(dataset: ImageDataset, asked: TrainConfig) -> Sizes:
    """The splits as training will make them."""
    counts = {split: _class_sizes(dataset, split) for split in ("train", "validation", "test")}
    n_train, where = len(counts["train"]), printable(asked.data.root or dataset.name)
    if n_train < 2:
        held_back = f", {len(counts['test'])} of them to test on" if counts["test"] else ""
        raise ConfigError(
            f"training compares 2 classes or more; {where} has {dataset.n_classes} classes{held_back}, which leaves {n_train}: "
            "add classes, or train on all and test on none with --set data.options.test_fraction=0"
        )
    fraction = max(VALIDATION_FRACTION, round(2 / n_train, 4))  # retrieval within one class is always right
    validates = round(fraction * n_train) <= n_train // 3
    if "validation_fraction" in asked.data.model_fields_set:
        fraction, validates = asked.data.validation_fraction, True
    if not counts["validation"] and asked.run.validate_every > 0 and validates:
        cut = dataset.with_validation(fraction, seed=asked.data.validation_seed)
        held_out = _class_sizes(cut, "validation")
        if sum(held_out) >= FEWEST_TO_VALIDATE and len(held_out) > 1:
            return Sizes(_class_sizes(cut, "train"), len(held_out), fraction, counts["test"])
    return Sizes(counts["train"], len(counts["validation"]), VALIDATION_FRACTION, counts["test"])


def _tables(sizes: Sizes, batch: tuple[int, int], *, gpu: bool) -> Tables:
    """The settings for photos: what configs/cub.toml has for CUB's 4,700 images, more or less of it for more or fewer."""
    n_images, (batch_size, n_classes) = sizes.n_images, batch
    passes, (fewest, most) = (GPU_PASSES, GPU_STEPS) if gpu else (CPU_PASSES, CPU_STEPS)
    steps = min(max(round(passes * n_images / batch_size / 50) * 50, fewest), most)
    rhythm = steps // 4 if steps <= 600 else steps // 20
    views = min(max(MOST_CACHE_BYTES // (VIEW_BYTES * n_images), 1), 4)
    frozen = {} if gpu else {"freeze_through": FREEZE_THROUGH, "cached_views": views}
    many_passes = steps * batch_size > 1.5 * passes * n_images  # a small dataset: γ must not vanish half-way
    return {
        "run": {
            "steps": steps,
            "validate_every": rhythm if sizes.n_validation else 0,
            "checkpoint_every": min(rhythm, 500),
            # Among few classes nearly every first neighbor is right, and Recall@1 no longer tells steps apart.
            "best_metric": "map_at_r" if sizes.n_validation < 20 else "recall_at_1",
            **({"precision": "bf16"} if gpu else {}),
        },
        "data": {
            "size": 256,
            "validation_fraction": sizes.validation_fraction,
            **({"threads": min(8, os.cpu_count() or 2)} if gpu else {}),
        },
        "model": {
            "backbone": BACKBONE,
            "weights": "packaged",
            "dim": DIM,
            "head_init": "pca" if n_images > DIM else "orthogonal",
            **frozen,
        },
        "loss": {
            "name": "facility_location",
            "margin_weight": batch_size / 2,
            **({"margin_decay_every": steps // passes} if many_passes else {}),
        },
        "batches": {"size": batch_size, "class_ratio": round(n_classes / batch_size, 4)},
        "optimizer": {
            "name": "rmsprop",
            "backbone_lr": 5e-5,
            "head_lr": 1e-4,
            "weight_decay": 1e-5,
            "warmup_steps": steps // 12,
            "schedule": "cosine",
        },
    }


def batch_shape(class_sizes: Sequence[int], *, ratio: float | None = None, asked_size: object = None) -> tuple[int, int]:
    """Images and classes in a batch: 128 and 32 where the dataset has them, four images to a class or half of a small class.

    `ratio` is the paper's C/m where it has one for the dataset, `asked_size` a size that the user has set.
    """
    half = float(np.median(class_sizes)) / 2
    per_class = 1 / ratio if ratio else min(4.0, max(half, 4 / 3))
    n_classes = min(len(class_sizes), round(MOST_IMAGES / per_class) if per_class < 4 else MOST_CLASSES)
    n_images = min(MOST_IMAGES, round(n_classes * max(per_class, min(half, MOST_IMAGES / n_classes))))
    n_images = min(n_images, sum(sorted(class_sizes)[-n_classes:]))
    if isinstance(asked_size, int) and asked_size > 3:
        return asked_size, min(n_classes, round(asked_size / per_class))
    if n_images <= n_classes:  # nearly all classes have one image: fewer of them, the largest
        n_classes = max(2, n_images // 2)
        n_images = min(sum(sorted(class_sizes)[-n_classes:]), 2 * n_classes)
    if n_images <= n_classes:
        raise ConfigError(
            f"training needs classes of 2 images or more; the {len(class_sizes)} training classes hold {sum(class_sizes)} images "
            "together: add images to them"
        )
    return n_images - n_images % 4 if n_images - n_images % 4 > n_classes else n_images, n_classes


def _fitting(chosen: Tables, given: Tables) -> Tables:
    """The choices, without those that the user's own rule out: another loss, network or batch composition."""
    fitting = {name: dict(table) for name, table in chosen.items()}
    asked = {**chosen["loss"], **given.get("loss", {})}
    if asked["name"] != chosen["loss"]["name"]:
        fitting["loss"] = {}
    elif bool(asked.get("n_subsets")) != bool(chosen["loss"].get("n_subsets")):  # γ goes with the images that are clustered
        fitting["loss"].pop("margin_weight", None)
    if given.get("model", {}).get("backbone", chosen["model"]["backbone"]) != chosen["model"]["backbone"]:
        fitting["model"] = {key: fitting["model"][key] for key in ("head_init", "dim") if key in fitting["model"]}
    if "images_per_class" in given.get("batches", {}):
        fitting["batches"].pop("class_ratio")
    steps = given.get("run", {}).get("steps")
    if isinstance(steps, int):
        fitting["optimizer"]["warmup_steps"] = min(fitting["optimizer"]["warmup_steps"], max(0, steps // 12))
    return fitting


def _without(chosen: Tables, unset: Iterable[str]) -> Tables:
    for key in unset:
        apply_unset(chosen, key, source="the choice of settings")
    return chosen


def _merged(first: Tables, second: Tables) -> Tables:
    return {name: {**first.get(name, {}), **second.get(name, {})} for name in {**first, **second}}


def _class_sizes(dataset: ImageDataset, split: str) -> tuple[int, ...]:
    sizes = np.bincount(dataset.labels[dataset.splits == split], minlength=1)
    return tuple(sizes[sizes > 0].tolist())


def _run_name(asked: TrainConfig) -> str:
    """The name of the folder or table, with other characters replaced."""
    data = asked.data
    if data.root is None or data.name not in {"folder", "csv"}:
        return data.name
    return re.sub(r"[^\w.+-]+", "-", Path(data.root).expanduser().resolve().stem).strip("-.") or data.name


def _reasons(config: TrainConfig, dataset: ImageDataset, sizes: Sizes, *, gpu: bool, validates: bool) -> tuple[str, ...]:
    """What was chosen and why, from the settings as they are after the user's own."""
    return (
        _about_classes(config, dataset, sizes, validates=validates),
        *about_choice(config),
        _about_network(config, gpu=gpu),
        _about_batches(config),
        _about_steps(config, sizes),
        f"all settings will be in {Path(config.run.folder) / config.run.name / CONFIG_FILE}; change any with --set, "
        f"as in --set run.steps={2 * config.run.steps}",
    )


def _about_classes(config: TrainConfig, dataset: ImageDataset, sizes: Sizes, *, validates: bool) -> str:
    validation = "none for validation (too few)" if validates else "none for validation"
    if sizes.n_validation:
        validation = f"{sizes.n_validation:,} for validation"
    return (
        f"{printable(config.data.root)}: {len(dataset):,} images of {dataset.n_classes:,} classes; {len(sizes.training):,} "
        f"classes ({sizes.n_images:,} images) for training, {validation}, "
        + (f"{len(sizes.test):,} for testing" if sizes.test else "none for testing")
    )


def _about_network(config: TrainConfig, *, gpu: bool) -> str:
    model = config.model
    pooled = "" if model.pooling == "average" else ", pooled by GeM"
    if model.freeze_through is None:
        return f"network: {model.backbone}{pooled}, trained end to end{' on the GPU' if gpu else ', which is slow without a GPU'}"
    kept = (
        f" and cached for {model.cached_views} crop{'s' * (model.cached_views != 1)} of each image" if model.cached_views else ""
    )
    return (
        f"network: {model.backbone}{pooled}, frozen through {model.freeze_through}{kept}{'' if gpu else ' (no GPU)'}; "
        "the rest is trained"
    )


def _about_batches(config: TrainConfig) -> str:
    size, per_class = config.batches.size, config.batches.images_per_class
    n_classes = size // per_class if per_class else round((config.batches.class_ratio or 0.25) * size)
    gamma = getattr(config.loss, "margin_weight", None)
    return f"batches: {size} images of {n_classes} classes" + (f"; γ = {gamma:g}, half of the batch" if gamma == size / 2 else "")


def _about_steps(config: TrainConfig, sizes: Sizes) -> str:
    run = config.run
    kept = f"the best by {run.best_metric} on the validation classes" if run.validate_every else "the last"
    passes = run.steps * config.batches.size / sizes.n_images
    return f"steps: {run.steps:,}, {passes:.0f} passes over the images; {kept} is kept"
