"""One configuration = one run: the settings behind the paper's "Implementation details", typed, checked and described.

Every field carries its description; docs/training.md shows them all.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from facetric.runs.loss_table import LossTable
from facetric.runs.table import Table

LARGEST_SEED = 2**64 - 1  # what torch takes
NAME_PATTERN = r"^[\w.+-]+$"  # of a run, which is also the name of its folder


def _as_list(value: Any) -> Any:
    """One name is a list of one, as in --set run.loggers=wandb."""
    return [value] if isinstance(value, str) else value


class RunTable(Table):
    name: str = Field(
        "run",
        min_length=1,
        pattern=NAME_PATTERN,
        description="Name of the run, and of its folder; on the command line that of the config file or of the photos.",
    )
    folder: str = Field("runs", description="Folder that holds the run folders.")
    seed: int = Field(0, ge=0, le=LARGEST_SEED, description="Seed of the weights, the batches, the augmentation and the loss.")
    steps: int = Field(1000, ge=0, description="Training steps; 0 saves the network with its initial head.")
    choose_minutes: float = Field(
        0.0,
        ge=0,
        description="Time to choose between pretrained features, a closed-form head, a trained head and fine-tuning with "
        "these settings, on held-out halves of the training classes; 0 trains as the settings say.",
    )
    precision: Annotated[Literal["32", "bf16", "fp16"], BeforeValidator(str)] = Field(
        "32", description="Precision of the forward pass; the loss is always float32."
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = Field("auto", description="Where to compute.")
    threads: int | None = Field(
        None, ge=1, le=1024, description="CPU threads of torch and NumPy; torch's default when left out, which is recorded."
    )
    log_every: int = Field(10, ge=1, description="Steps between rows of metrics.jsonl.")
    validate_every: int = Field(
        200, ge=0, description="Steps between validations; the last step is validated too. 0 for none at all."
    )
    checkpoint_every: int = Field(200, ge=1, description="Steps between checkpoints. The last step is always saved.")
    best_metric: str = Field("recall_at_1", description="Validation score that selects checkpoints/best.safetensors.")
    loggers: Annotated[tuple[Literal["tensorboard", "wandb"], ...], BeforeValidator(_as_list)] = Field(
        (), description='Where the rows of metrics.jsonl go too: ["tensorboard", "wandb"], each an extra of the install.'
    )


class DataTable(Table):
    name: str = Field(description="Dataset: glyphs, cub, cars, products, folder or csv.")
    root: str | None = Field(None, description="Where the dataset is; glyphs is built in and has none.")
    options: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="Further options of the reader, such as test_fraction and seed for folder."
    )
    validation_fraction: float = Field(0.2, gt=0, lt=1, description="Fraction of the training classes held out for validation.")
    validation_seed: int = Field(0, ge=0, description="Seed of the random choice of validation classes.")
    all_classes: bool = Field(
        False, description="Train on all classes, those for testing included: for use, nothing is left to score on."
    )
    size: int = Field(256, ge=8, le=4096, description="Image files are resized to size × size before cropping.")
    pad: int = Field(
        0, ge=0, le=1024, description="Black pixels added on every side of in-memory images, so that random crops shift them."
    )
    augment: Literal["crop", "resized_crop", "none"] = Field(
        "crop", description="Training crop: random position (the paper), random position, size and aspect, or the center."
    )
    flip: bool = Field(True, description="Random horizontal flips; turn off where orientation matters.")
    threads: int = Field(2, ge=1, le=1024, description="Threads that decode images and prepare batches ahead.")


class ModelTable(Table):
    backbone: str = Field("tf_efficientnet_lite0", description="Any timm name, googlenet (the paper's) or glyphnet (ours).")
    dim: int = Field(64, ge=1, le=65536, description="d: dimensions of the embedding.")
    weights: str | None = Field(None, description="packaged, hub, none, or a file; the backbone's default when left out.")
    image_size: int | None = Field(
        None, ge=1, le=4096, description="Side of the square input crop; the backbone's default when left out."
    )
    pooling: Literal["average", "gem"] = Field(
        "average",
        description="The last maps of the backbone as one vector: their average, or a generalized mean (power 3), from which "
        "fine-grained classes gain.",
    )
    freeze_through: str | None = Field(
        None, description='Freeze the backbone up to and including this part, such as "blocks.4"; "all" trains the head only.'
    )
    cached_views: int = Field(
        0,
        ge=0,
        description="Augmented views per image with cached activations of the frozen part; 0 runs it in every step.",
    )
    views_seed: int = Field(
        0, ge=0, description="Seed of the cached views; separate from run.seed, so that runs with different seeds share a cache."
    )
    head_init: Literal["pca", "whitened", "orthogonal", "default"] = Field(
        "pca",
        description="Initialization of the head: half-whitened PCA of the training features; whitened (by the spread within "
        "training classes, then PCA; features are l2-normalized first); orthogonal; or torch's default.",
    )
    head_refit: bool = Field(
        False,
        description="At every validation and at the end, save the network with a whitened head fitted to its features at that "
        "step instead of the trained head. Training continues with its own head.",
    )
    pretrained_fraction: float = Field(
        0.0,
        ge=0,
        le=1,
        description="With head_refit: f of the backbone that is saved, (1 − f)·trained + f·pretrained weights. Training "
        "continues with its own.",
    )
    head_scale: float = Field(
        1.0, gt=0, description="Scale of the initial head; matters for losses that do not normalize, such as npairs."
    )

    @model_validator(mode="after")
    def _cache_needs_a_frozen_part(self) -> Self:
        if self.cached_views and self.freeze_through is None:
            raise ValueError(
                f"model.cached_views ({self.cached_views}) keeps the activations of the frozen part, and nothing is frozen: "
                "set model.freeze_through, or cached_views = 0"
            )
        return self

    @model_validator(mode="after")
    def _another_backbone_needs_another_head(self) -> Self:
        if self.pretrained_fraction and not self.head_refit:
            raise ValueError(
                f"model.pretrained_fraction ({self.pretrained_fraction}) changes the backbone after training, which needs a head "
                "fitted to it: set model.head_refit (--set model.head_refit=true), or pretrained_fraction = 0"
            )
        return self


class BatchTable(Table):
    size: int = Field(128, ge=2, description="m: images in the global batch of all processes.")
    class_ratio: float | None = Field(None, gt=0, le=1, description="C / m: distinct classes per image; 0.25 by default.")
    images_per_class: int | None = Field(None, ge=1, description="Images of each class, instead of class_ratio.")

    @model_validator(mode="after")
    def _one_way_to_fill_a_batch(self) -> Self:
        if self.class_ratio is not None and self.images_per_class is not None:
            raise ValueError(
                f"batches.class_ratio ({self.class_ratio}) and batches.images_per_class ({self.images_per_class}) both set the "
                "classes of a batch: give one"
            )
        return self


class OptimizerTable(Table):
    name: Literal["rmsprop", "adamw"] = Field("rmsprop", description="rmsprop (the paper) or adamw.")
    backbone_lr: float = Field(1e-5, ge=0, description="Learning rate of the backbone.")
    head_lr: float = Field(1e-4, ge=0, description="Learning rate of the embedding head.")
    loss_lr: float = Field(1e-2, ge=0, description="Learning rate of the loss's own parameters, such as proxies.")
    weight_decay: float = Field(0.0, ge=0, description="Weight decay; not applied to norms and biases.")
    warmup_steps: int = Field(0, ge=0, description="Steps of linear learning-rate warm-up from 0.")
    schedule: Literal["constant", "cosine"] = Field("constant", description="Learning-rate schedule after the warm-up.")
    clip_norm: float | None = Field(
        None, gt=0, description="Maximum gradient norm over all parameters; no clipping when left out."
    )


class TrainConfig(Table):
    """All settings of a run. `read_config` reads them from a TOML file."""

    run: RunTable = Field(default_factory=lambda: RunTable.model_validate({}), description="Name, length and logging.")
    data: DataTable = Field(description="The images.")
    model: ModelTable = Field(default_factory=lambda: ModelTable.model_validate({}), description="The network.")
    loss: LossTable = Field(default_factory=lambda: LossTable.model_validate({}), description="The loss.")
    batches: BatchTable = Field(default_factory=lambda: BatchTable.model_validate({}), description="Batch composition.")
    optimizer: OptimizerTable = Field(default_factory=lambda: OptimizerTable.model_validate({}), description="The optimizer.")

    @model_validator(mode="after")
    def _warm_up_before_the_end(self) -> Self:
        if 0 < self.run.steps <= self.optimizer.warmup_steps:
            raise ValueError(
                f"optimizer.warmup_steps ({self.optimizer.warmup_steps}) must be below run.steps ({self.run.steps}): "
                "lower it or train longer"
            )
        return self

    @model_validator(mode="after")
    def _no_classes_left_to_validate(self) -> Self:
        if self.data.all_classes and (self.run.validate_every or self.run.choose_minutes):
            raise ValueError(
                "data.all_classes trains on every class, which leaves none to validate or to choose on: add "
                "--set run.validate_every=0 --set run.choose_minutes=0"
            )
        return self

    @model_validator(mode="after")
    def _subsets_of_the_batch(self) -> Self:
        if (self.loss.subset_size or 0) > self.batches.size:
            raise ValueError(
                f"loss.subset_size ({self.loss.subset_size}) exceeds batches.size ({self.batches.size}): lower it, or leave it "
                "out for half of the batch"
            )
        return self

    @model_validator(mode="after")
    def _prefixes_of_the_embedding(self) -> Self:
        widths = self.loss.nested
        if list(widths) != sorted(set(widths)) or (widths and widths[-1] >= self.model.dim):
            raise ValueError(
                f"loss.nested must be ascending widths below model.dim ({self.model.dim}); got {list(widths)}: change one "
                "of them (--set loss.nested=[64] or --set model.dim=512)"
            )
        return self


def first_difference(config: TrainConfig, other: TrainConfig) -> str | None:
    """The first "table.key" in which two runs differ. Run folder, name, threads and the spelling of paths do not count."""
    tables, others = (real_paths(run.model_dump()) for run in (config, other))
    for name, table in tables.items():
        for key, value in table.items():
            ignored = name == "run" and key in {"folder", "name", "threads"}
            if not ignored and others[name].get(key) != value:
                return f"{name}.{key}"
    return None


def real_paths(tables: dict[str, Any]) -> dict[str, Any]:
    """Plain tables with one spelling for every path to the same data."""
    data = dict(tables.get("data", {}))
    if data.get("root"):
        data["root"] = os.path.realpath(os.path.expanduser(data["root"]))
    if (options := data.get("options", {})).get("file"):
        data["options"] = {**options, "file": os.path.realpath(os.path.expanduser(options["file"]))}
    return {**tables, "data": data}


TABLES: dict[str, type[Table]] = {
    "run": RunTable,
    "data": DataTable,
    "model": ModelTable,
    "loss": LossTable,
    "batches": BatchTable,
    "optimizer": OptimizerTable,
}
