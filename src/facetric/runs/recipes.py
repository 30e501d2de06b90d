"""Recipes: every chosen hyper-parameter, by dataset, size and machine, each with its reason; the only place where they stand.

Characters, other people's photos (what configs/cub.toml has for CUB, more or less of it for more or fewer images), and one's own
photos without a GPU: how to fine-tune, and time to find out whether something simpler does as well.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from facetric.images import ImageDataset, load_dataset
from facetric.runs.config import TrainConfig
from facetric.runs.config_file import CONFIG_FILE, ConfigError, apply_override, apply_unset, parse_config
from facetric.runs.network_settings import BACKBONE, MOST_CACHE_BYTES, network_settings, networks_to_compare
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

MOST_IMAGES, MOST_CLASSES = 128, 32  # in a batch
VALIDATION_FRACTION, FEWEST_TO_VALIDATE = 0.2, 9  # images: validation scores Recall@8
PAPER_RATIOS = {"products": 0.75}  # C/m where it differs from that of CUB and Cars

# Photos of any dataset.
FREEZE_THROUGH, VIEW_BYTES = "blocks.4", 43_904  # 112 × 14 × 14 float16
DIM = 64
CPU_PASSES, CPU_STEPS = 11, (100, 400)  # passes over the images, and the fewest and the most steps
GPU_PASSES, GPU_STEPS = 40, (200, 20_000)

# One's own photos without a GPU.
OWN = ("folder", "csv", "huggingface")  # datasets whose recipe is chosen on their own classes
OWN_PASSES, OWN_STEPS = 11, (20, 100)
CHOOSE_MINUTES, FEWEST_TO_CHOOSE = 10, 4  # training classes: half of fewer is one, where every neighbor is right
N_SUBSETS, ENOUGH_FOR_SUBSETS = 16, 64  # images in a batch: halves of half of the classes must hold pairs

Tables = dict[str, dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Recipe:
    """A run that is ready to train, a few lines that explain its settings, and the images that were counted for them."""

    config: TrainConfig
    reasons: tuple[str, ...]
    dataset: ImageDataset | None  # None for the built-in characters, which are drawn when they are needed


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


def recipe(
    data: str,
    root: str | os.PathLike[str] | None = None,
    *,
    overrides: Iterable[str] = (),
    unset: Iterable[str] = (),
    gpu: bool = False,
    choose: bool = True,
) -> Recipe:
    """A run on this dataset with settings that suit it. `gpu`: whether the machine has one.

    `choose`: whether the recipe for one's own photos may be chosen on their classes; a study gives all methods the same one.

    `unset` keys such as "model.cached_views" are dropped from the chosen settings, then `overrides` such as "run.steps=50" are
    set. A ConfigError or ValueError of one line when the dataset cannot be read or has too little to train on.
    """
    given: Tables = {"data": {"name": data} if root is None else {"name": data, "root": str(root)}}
    for override in overrides:
        apply_override(given, override)
    minutes = {"choose_minutes": CHOOSE_MINUTES} if given.get("run", {}).get("choose_networks") else {}
    asked = parse_config({"run": {**minutes, **given.get("run", {})}, "data": given["data"]})
    if asked.data.name == GLYPHS["data"]["name"] and asked.data.root is None:
        config = parse_config(_merged(_without(_fitting(GLYPHS, given), unset), given))
        return Recipe(config, ("glyphs: a small network from scratch, as in configs/glyphs.toml",), None)
    dataset = load_dataset(asked.data.name, asked.data.root, **asked.data.options)
    gpu = gpu and asked.run.device in {"auto", "cuda"}
    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    named = asked.run.choose_networks if "choose_networks" in asked.run.model_fields_set else None
    if given.get("run", {}).get("choose_minutes") == 0:
        named = ()
    networks = networks_to_compare(given.get("model", {}), named)
    has_weights = given.get("model", {}).get("weights") != "none"
    chooses = choose and alone and has_weights and (bool(named) or (asked.data.name in OWN and not gpu))
    if chooses and "validate_every" not in asked.run.model_fields_set:
        asked = asked.model_copy(update={"run": asked.run.model_copy(update={"validate_every": 0})})
    sizes = _sizes(dataset, asked)
    batch = batch_shape(sizes.training, ratio=PAPER_RATIOS.get(asked.data.name), asked_size=given.get("batches", {}).get("size"))
    if chooses:
        chosen = own_tables(sizes, batch, networks, asked_dim=given.get("model", {}).get("dim"))
    else:
        chosen = photo_tables(sizes, batch, gpu=gpu)
    chosen["run"]["name"] = _run_name(asked)
    if asked.data.name in OWN:
        chosen["data"]["fit"] = "crop"  # MAP@R 59.0 → 62.1 on pets, 36.3 → 36.8 on groceries (docs/backbones.md)
    config = parse_config(_merged(_without(_fitting(chosen, given), unset), given))
    return Recipe(
        config, _reasons(config, dataset, sizes, gpu=gpu and not chooses, validates=asked.run.validate_every > 0), dataset
    )


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


def photo_tables(sizes: Sizes, batch: tuple[int, int], *, gpu: bool) -> Tables:
    """The settings for photos of any dataset. `batch`: its images and classes."""
    n_images, batch_size = sizes.n_images, batch[0]
    passes, (fewest, most) = (GPU_PASSES, GPU_STEPS) if gpu else (CPU_PASSES, CPU_STEPS)
    steps = min(max(round(passes * n_images / batch_size / 50) * 50, fewest), most)
    rhythm = steps // 4 if steps <= 600 else steps // 20
    views = min(max(MOST_CACHE_BYTES // (VIEW_BYTES * n_images), 1), 4)
    tables = _common_tables(sizes, batch, steps=steps, backbone_lr=5e-5)
    tables["run"] |= {"validate_every": rhythm if sizes.n_validation else 0, "checkpoint_every": min(rhythm, 500)}
    tables["model"] |= {"dim": DIM, "head_init": "pca" if n_images > DIM else "orthogonal"}
    tables["loss"] |= {"margin_weight": batch_size / 2}
    if gpu:
        tables["run"] |= {"precision": "bf16"}
    else:
        tables["model"] |= {"freeze_through": FREEZE_THROUGH, "cached_views": views}
    return tables


def own_tables(sizes: Sizes, batch: tuple[int, int], networks: Sequence[str], *, asked_dim: object) -> Tables:
    """The settings for one's own photos with the first of these networks; the choice compares all of them.

    `asked_dim`: the length of a vector that the user has set.
    """
    n_images, batch_size = sizes.n_images, batch[0]
    own = network_settings(networks[0], n_images)
    can_choose = sum(size > 1 for size in sizes.training) >= FEWEST_TO_CHOOSE
    can_whiten = not isinstance(asked_dim, int) or asked_dim < n_images or asked_dim == own["model"]["dim"]
    chooses = can_choose and can_whiten
    steps = min(max(round(OWN_PASSES * n_images / batch_size / 10) * 10, OWN_STEPS[0]), OWN_STEPS[1]) if can_choose else 0
    tables = _common_tables(sizes, batch, steps=steps, backbone_lr=own["optimizer"]["backbone_lr"])
    tables["run"] |= {
        "choose_minutes": CHOOSE_MINUTES if chooses else 0,
        "choose_networks": list(networks) if chooses and len(networks) > 1 else [],
        "validate_every": max(steps // 2, 1) if sizes.n_validation else 0,
        "checkpoint_every": 20,
    }
    tables["data"] |= own["data"]
    tables["model"] |= own["model"]
    tables["model"] |= {"head_init": "whitened" if can_whiten else "orthogonal", "head_refit": can_whiten}
    tables["loss"] |= {"n_subsets": N_SUBSETS if batch_size >= ENOUGH_FOR_SUBSETS else 0}
    if not can_choose:  # the closed form
        tables["data"] |= {"augment": "none"}
        tables["model"] |= {"freeze_through": "all", "cached_views": 1, "head_refit": False}
    return tables


def _common_tables(sizes: Sizes, batch: tuple[int, int], *, steps: int, backbone_lr: float) -> Tables:
    batch_size, n_classes = batch
    return {
        # Among few classes nearly every first neighbor is right, and Recall@1 no longer tells steps apart.
        "run": {"steps": steps, "best_metric": "map_at_r" if sizes.n_validation < 20 else "recall_at_1"},
        "data": {"size": 256, "validation_fraction": sizes.validation_fraction},
        "model": {"backbone": BACKBONE, "weights": "packaged"},
        "loss": {"name": "facility_location"},
        "batches": {"size": batch_size, "class_ratio": round(n_classes / batch_size, 4)},
        "optimizer": {
            "name": "rmsprop",
            "backbone_lr": backbone_lr,
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
    if data.root is None or data.name not in OWN:
        return data.name
    return re.sub(r"[^\w.+-]+", "-", Path(data.root).expanduser().resolve().stem).strip("-.") or data.name


def _reasons(config: TrainConfig, dataset: ImageDataset, sizes: Sizes, *, gpu: bool, validates: bool) -> tuple[str, ...]:
    """What was chosen and why, from the settings as they are after the user's own."""
    run, model, batches = config.run, config.model, config.batches
    too_few = "none for validation" + " (too few)" * validates
    validation = f"{sizes.n_validation:,} for validation" if sizes.n_validation else too_few
    test = f"{len(sizes.test):,} for testing" if sizes.test else "none for testing"
    classes = (
        f"{printable(config.data.root)}: {len(dataset.labels):,} images of {len(dataset.class_names):,} classes; "
        f"{len(sizes.training):,} classes ({sizes.n_images:,} images) for training, {validation}, {test}"
    )
    compared = f"the network ({', '.join(run.choose_networks)}), and " if run.choose_networks else ""
    choice = (
        f"recipe: {compared}pretrained features, a closed-form head, a trained head or fine-tuning as below, whichever is best "
        f"on held-out halves of the training classes; up to {run.choose_minutes:g} minute{'s' * (run.choose_minutes != 1)} "
        "(--set run.choose_minutes=…; 0: fine-tune)"
    )
    network = f"network{', unless another is chosen' * bool(compared)}: {model.backbone}"
    network += "" if model.pooling == "average" else ", pooled by GeM"
    if model.freeze_through is None:
        network += f", trained end to end{' on the GPU' if gpu else ', which is slow without a GPU'}"
    else:
        views = f" and cached for {model.cached_views} crop{'s' * (model.cached_views != 1)} of each image"
        network += f", frozen through {model.freeze_through}{views * (model.cached_views > 0)}{'' if gpu else ' (no GPU)'}"
        network += "; the rest is trained"
    n_classes = batches.size // (batches.images_per_class or 1)
    if not batches.images_per_class:
        n_classes = round((batches.class_ratio or 0.25) * batches.size)
    gamma = getattr(config.loss, "margin_weight", None)
    margin = f"; γ = {gamma:g}, half of the batch" if gamma == batches.size / 2 else ""
    passes = run.steps * batches.size / sizes.n_images
    kept = f"the best by {run.best_metric} on the validation classes" if run.validate_every else "the last"
    return (
        classes,
        *((choice,) if run.choose_minutes else ()),
        network,
        f"batches: {batches.size} images of {n_classes} classes{margin}",
        f"steps: {run.steps:,}, {passes:.0f} passes over the images; {kept} is kept",
        f"all settings will be in {Path(run.folder) / run.name / CONFIG_FILE}; change any with --set, "
        f"as in --set run.steps={2 * run.steps}",
    )
