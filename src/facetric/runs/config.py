"""One configuration = one run: the settings behind the paper's "Implementation details", typed, checked and described.

Every field carries its description; the site has them all in one table. The options of a loss come from its signature.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from torch import nn

from facetric.images import Fit
from facetric.losses import LOSSES, MatryoshkaLoss, SubsampledLoss, build_loss
from facetric.text import did_you_mean

RUN_FOLDER = "run folder"  # the context of a configuration that facetric has written: its loss has been built


class Table(BaseModel):
    """A table of the TOML file: frozen, and unknown keys are refused with the nearest known one."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def known_keys(cls) -> list[str]:
        """What the table may hold."""
        return list(cls.model_fields)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, values: Any) -> Any:
        if isinstance(values, dict):
            known = cls.known_keys()
            for key in values:
                if key not in known:
                    raise ValueError(unknown_key(cls, str(key), known))
        return values


class RunTable(Table):
    """What the run is called, how long it takes and where it computes."""

    name: str = Field(
        "run", description="Name of the run, and of its folder; on the command line that of the config file or of the photos."
    )
    folder: str = Field("runs", description="Folder that holds the run folders.")
    seed: int = Field(0, ge=0, le=2**64 - 1, description="Seed of the weights, the batches, the augmentation and the loss.")
    steps: int = Field(1000, ge=0, description="Training steps; 0 saves the network with its initial head.")
    choose_minutes: float = Field(
        0.0,
        ge=0,
        description="Time to choose between pretrained features, a closed-form head, a trained head and fine-tuning with "
        "these settings, on held-out halves of the training classes; 0 trains as the settings say.",
    )
    choose_networks: Annotated[
        tuple[str, ...], BeforeValidator(lambda value: value.split(",") if isinstance(value, str) else value)
    ] = Field(
        (),
        description='Networks that the choice compares with model.backbone, such as ["lite1", "lite2"]: the recipes are tried on '
        "the one that sees the held-out classes best without training.",
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
    best_metric: Literal["recall_at_1", "recall_at_2", "recall_at_4", "recall_at_8", "map_at_r", "nmi"] = Field(
        "recall_at_1", description="Validation score that selects checkpoints/best.safetensors."
    )
    loggers: Annotated[  # one name is a list of one, as in --set run.loggers=wandb
        tuple[Literal["tensorboard", "wandb"], ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
    ] = Field((), description='Where the rows of metrics.jsonl go too: ["tensorboard", "wandb"], each an extra of the install.')

    @field_validator("name")
    @classmethod
    def _can_name_a_folder(cls, name: str) -> str:
        if not re.fullmatch(r"[\w.+-]+", name):
            raise ValueError(
                f"run.name, a folder, takes letters, digits and . _ + - only; got {name!r}: choose another (--output, or "
                "--set run.name=…)"
            )
        return name


class DataTable(Table):
    """Which images, and which of their classes train."""

    name: str = Field(description="Dataset: glyphs, cub, cars, products, folder, csv or huggingface.")
    root: str | None = Field(None, description="Where the dataset is; glyphs is built in and has none.")
    options: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="Further options of the reader, such as test_fraction and seed for folder."
    )
    validation_fraction: float = Field(0.2, gt=0, lt=1, description="Fraction of the training classes held out for validation.")
    validation_seed: int = Field(0, ge=0, description="Seed of the random choice of validation classes.")
    all_classes: bool = Field(
        False, description="Train on all classes, those for testing included: for use, nothing is left to score on."
    )
    size: int = Field(
        256,
        ge=8,
        le=4096,
        validate_default=True,
        description="Image files are resized to size × size before cropping; glyphs have the size that they are drawn at.",
    )
    fit: Fit = Field(
        "stretch",
        description="How an image file becomes a square: stretch (the paper), or crop, which keeps proportions and leaves out "
        "the ends of its longer side.",
    )
    pad: int = Field(0, ge=0, le=64, description="Black pixels added on every side of glyphs, so that random crops shift them.")
    augment: Literal["crop", "none"] = Field("crop", description="Training crop: random position (the paper), or the center.")
    flip: bool = Field(True, description="Random horizontal flips; turn off where orientation matters.")
    threads: int | None = Field(None, ge=1, le=1024, description="Threads that make batches ahead; one per core when left out.")

    @field_validator("size", "pad")
    @classmethod
    def _drawings_have_a_size_of_their_own(cls, value: int, about: ValidationInfo) -> int:
        """And only they are padded."""
        if about.data.get("name") == "glyphs":
            return value if about.field_name == "pad" else int(about.data.get("options", {}).get("size", 32))
        return 0 if about.field_name == "pad" else value


class ModelTable(Table):
    """Backbone, pooling, head and what of it is frozen."""

    backbone: str = Field(
        "tf_efficientnet_lite0", description="A network that `facetric models` lists, any timm name, googlenet or glyphnet."
    )
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
        0, ge=0, description="Augmented views per image with cached activations of the frozen part; 0 runs it in every step."
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
    def _parts_that_need_others(self) -> Self:
        if self.cached_views and self.freeze_through is None:
            raise ValueError(
                f"model.cached_views ({self.cached_views}) keeps the activations of the frozen part, and nothing is frozen: "
                "set model.freeze_through, or cached_views = 0"
            )
        if self.pretrained_fraction and not self.head_refit:
            raise ValueError(
                f"model.pretrained_fraction ({self.pretrained_fraction}) changes the backbone after training, which needs a head "
                "fitted to it: set model.head_refit (--set model.head_refit=true), or pretrained_fraction = 0"
            )
        return self


class LossTable(Table):
    """The loss of a run. Beside the fields below it holds the options of the loss: the arguments of its constructor."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(
        "facility_location",
        description="A loss of facetric.losses.LOSSES, or a dotted name: pytorch_metric_learning.SupConLoss, my_module.MyLoss.",
    )
    options: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="Options of a loss with a dotted name: its arguments, by their names."
    )
    normalize: bool | None = Field(
        None,
        description="Normalize embeddings to unit length, in training and evaluation; by default as in the paper for the loss.",
    )
    margin_decay: float = Field(0.94, gt=0, le=1, description="γ is multiplied by this at every decay; 1 keeps it constant.")
    margin_decay_every: int | None = Field(
        None, ge=1, description="Steps between decays of γ; by default a pass over the images, and no fewer than 45 (CUB's)."
    )
    n_subsets: int = Field(
        0,
        ge=0,
        le=10_000,
        description="The loss is averaged over this many random subsets of the batch (we recommend 16); 0 for the batch itself.",
    )
    subset_size: int | None = Field(None, ge=2, description="Images in a subset; by default half of the batch.")
    nested: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (),
        description="Widths below model.dim, such as [64]: the loss is the mean over the whole embedding and over its first 64 "
        "dimensions, which then serve alone.",
    )

    @classmethod
    def known_keys(cls) -> list[str]:
        """Its own, and the options of every loss."""
        return [*cls.model_fields, *(key for name in LOSSES for key in loss_options(name))]

    @model_validator(mode="before")
    @classmethod
    def _fill_in_the_options_of_the_loss(cls, values: Any, info: ValidationInfo) -> Any:
        """Refuse options that the loss does not take, and fill in its defaults.

        The constructor checks the values, but not those of a run folder; a loss with a dotted name is imported for training only.
        """
        if not isinstance(values, dict):
            return values
        values = {key: value for key, value in values.items() if value is not None}
        name = values.get("name", cls.model_fields["name"].default)
        own = {str(key): value for key, value in values.items() if key not in cls.model_fields}
        if isinstance(name, str) and "." in name:
            if own:
                raise ValueError(f"loss {name!r} takes its options in [loss.options]; got loss.{next(iter(own))}: put it there")
            return {"normalize": True, **values}
        if values.get("options"):
            own_options = "in a study give them to their loss, as in --method 'my_module.MyLoss(margin=0.5)'"
            raise ValueError(f"[loss.options] is for losses with a dotted name; {name!r} has its keys in [loss]: {own_options}")
        defaults = loss_options(name) if isinstance(name, str) and name in LOSSES else {}
        for key in own:
            if key not in cls.known_keys():
                raise ValueError(unknown_key(cls, key, [*cls.model_fields, *defaults]))
        if info.context != RUN_FOLDER or not defaults or not own.keys() <= defaults.keys():
            build_loss(name, own)
        for key, value in own.items():
            values[key] = None if value == "none" and defaults[key] is None else value  # TOML has no None
        return {"normalize": True, **defaults, **values}

    @model_validator(mode="after")
    def _subsets_of_a_size(self) -> Self:
        if self.subset_size is not None and not self.n_subsets:
            raise ValueError(
                f"loss.subset_size ({self.subset_size}) has no effect without subsets: set loss.n_subsets too, or leave it out"
            )
        return self

    def build(self, *, dim: int, n_classes: int, seed: int) -> nn.Module:
        """The loss on embeddings of this many dimensions, with its subsets and widths."""
        by_width: dict[int, nn.Module] = {}
        for width in (*self.nested, dim):
            loss = build_loss(self.name, self.keywords(), dim=width, n_classes=n_classes, seed=seed)
            by_width[width] = SubsampledLoss(loss, self.n_subsets, self.subset_size, seed=seed) if self.n_subsets else loss
        return MatryoshkaLoss(by_width) if self.nested else by_width[dim]

    def keywords(self) -> dict[str, Any]:
        """The options of the loss."""
        if "." in self.name:
            return dict(self.options)
        values = {key: (getattr(self, key), default) for key, default in loss_options(self.name).items()}
        return {key: None if value == "none" != default else value for key, (value, default) in values.items()}


class BatchTable(Table):
    """How many images and classes a batch has."""

    size: int = Field(128, ge=2, description="m: images in the global batch of all processes.")
    class_ratio: float | None = Field(None, gt=0, le=1, description="C / m: distinct classes per image; 0.25 by default.")
    images_per_class: int | None = Field(None, ge=1, description="Images of each class, instead of class_ratio.")


class OptimizerTable(Table):
    """The optimizer and its rates."""

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
    def _tables_that_agree(self) -> Self:
        if 0 < self.run.steps <= self.optimizer.warmup_steps:
            raise ValueError(
                f"optimizer.warmup_steps ({self.optimizer.warmup_steps}) must be below run.steps ({self.run.steps}): "
                "lower it or train longer"
            )
        if self.data.all_classes and (self.run.validate_every or self.run.choose_minutes):
            raise ValueError(
                "data.all_classes trains on every class, which leaves none to validate or to choose on: add "
                "--set run.validate_every=0 --set run.choose_minutes=0"
            )
        if self.run.choose_networks and not self.run.choose_minutes:
            raise ValueError(
                f"run.choose_networks ({', '.join(self.run.choose_networks)}) are compared within run.choose_minutes, which is "
                "0: give the choice time (--set run.choose_minutes=10), or leave the networks out"
            )
        if (self.loss.subset_size or 0) > self.batches.size:
            raise ValueError(
                f"loss.subset_size ({self.loss.subset_size}) exceeds batches.size ({self.batches.size}): lower it, or leave it "
                "out for half of the batch"
            )
        widths = self.loss.nested
        if list(widths) != sorted(set(widths)) or (widths and widths[-1] >= self.model.dim):
            raise ValueError(
                f"loss.nested must be ascending widths below model.dim ({self.model.dim}); got {list(widths)}: change one "
                "of them (--set loss.nested=[64] or --set model.dim=512)"
            )
        return self


TABLES: dict[str, Any] = {name: field.annotation for name, field in TrainConfig.model_fields.items()}


def loss_options(name: str) -> dict[str, Any]:
    """The options of a loss with their defaults, in the order of its signature, but for `seed`: a run has one for all.

    >>> loss_options("npairs")
    {'norm_weight': 0.002, 'normalize': False}
    """
    return {key: option.default for key, option in inspect.signature(LOSSES[name]).parameters.items() if key != "seed"}


def unknown_key(table: type[Table], key: str, known: Iterable[str]) -> str:
    """A message with the nearest of the `known` keys of the table or, under the same name, with another table."""
    title = next((name for name, other in TABLES.items() if other is table), None)
    where = f"unknown key {key!r} in [{title}]" if title else f"unknown table or key {key!r}"
    if hint := did_you_mean(key, known):
        return where + hint
    homes = [name for name, other in TABLES.items() if key in other.known_keys()]
    return f"{where}; did you mean '{homes[0]}.{key}'?" if homes else f"{where}; known keys: {', '.join(known)}"
