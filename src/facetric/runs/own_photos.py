"""Settings for one's own photos without a GPU: how to fine-tune, and time to find out whether a simpler recipe does as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from facetric.runs.config import TrainConfig

if TYPE_CHECKING:
    from facetric.runs.recipes import Sizes

OWN = ("folder", "csv")  # datasets whose recipe is chosen on their own classes
BACKBONE, N_FEATURES = "tf_efficientnet_lite0", 1280
POOLING = "gem"  # on 60 small folders of birds and characters its closed-form head had a MAP@R 0.9 and 3.6 higher
FREEZE_THROUGH, VIEW_BYTES = "blocks.3", 31_360  # 80 × 14 × 14 float16
MOST_CACHE_BYTES = 4_000_000_000  # of the activations on disk; large datasets get fewer views
PASSES, STEPS = 11, (20, 100)  # over the images; the fewest and the most
CHOOSE_MINUTES, FEWEST_TO_CHOOSE = 10, 4  # training classes: half of fewer is one, where every neighbor is right
SMALL_FOLDER, SMALL_TEST_FRACTION = 40, 0.33  # classes: of fewer, more train
DIM, ENOUGH_FOR_DIM = 256, 2000  # images: a head of 256 dimensions fitted to fewer loses what tells new classes apart
N_SUBSETS, ENOUGH_FOR_SUBSETS = 16, 64  # images in a batch: halves of half of the classes must hold pairs


def own_tables(sizes: Sizes, batch: tuple[int, int], *, asked_dim: object) -> dict[str, dict[str, Any]]:
    """The chosen settings. `batch`: its images and classes; `asked_dim`: dimensions that the user has set."""
    n_images, (batch_size, n_classes) = sizes.n_images, batch
    can_choose = sum(size > 1 for size in sizes.training) >= FEWEST_TO_CHOOSE
    can_whiten = not isinstance(asked_dim, int) or asked_dim < n_images or asked_dim == N_FEATURES
    steps = min(max(round(PASSES * n_images / batch_size / 10) * 10, STEPS[0]), STEPS[1]) if can_choose else 0
    model = {
        "backbone": BACKBONE,
        "weights": "packaged",
        "dim": DIM if n_images >= ENOUGH_FOR_DIM else N_FEATURES,
        "pooling": POOLING,
        "head_init": "whitened" if can_whiten else "orthogonal",
        "freeze_through": FREEZE_THROUGH,
        "cached_views": min(max(MOST_CACHE_BYTES // (VIEW_BYTES * n_images) - 1, 1), 2),  # and the central crop
        "head_refit": can_whiten,
    }
    if not can_choose:  # the closed form
        model |= {"freeze_through": "all", "cached_views": 1, "head_refit": False}
    return {
        "run": {
            "steps": steps,
            "choose_minutes": CHOOSE_MINUTES if can_choose and can_whiten else 0,
            "validate_every": max(steps // 2, 1) if sizes.n_validation else 0,
            "checkpoint_every": 20,
            "best_metric": "map_at_r" if sizes.n_validation < 20 else "recall_at_1",
        },
        "data": {
            "size": 256,
            "validation_fraction": sizes.validation_fraction,
            **({} if can_choose else {"augment": "none"}),
        },
        "model": model,
        "loss": {"name": "facility_location", "n_subsets": N_SUBSETS if batch_size >= ENOUGH_FOR_SUBSETS else 0},
        "batches": {"size": batch_size, "class_ratio": round(n_classes / batch_size, 4)},
        "optimizer": {
            "name": "rmsprop",
            "backbone_lr": 1e-4,
            "head_lr": 1e-4,
            "weight_decay": 1e-5,
            "warmup_steps": steps // 12,
            "schedule": "cosine",
        },
    }


def options_for_testing(n_classes: int) -> dict[str, float]:
    """What the reader of a folder is told: half of the classes test, of few classes a third, at least two."""
    if not FEWEST_TO_CHOOSE <= n_classes < SMALL_FOLDER:
        return {}
    return {"test_fraction": max(SMALL_TEST_FRACTION, round(2 / n_classes, 4))}


def about_choice(config: TrainConfig) -> tuple[str, ...]:
    """One line for the user, if there is anything to choose."""
    if not config.run.choose_minutes:
        return ()
    return (
        "recipe: pretrained features, a closed-form head, a trained head or fine-tuning as below, whichever is best on held-out "
        f"halves of the training classes; up to {config.run.choose_minutes:g} minutes (--set run.choose_minutes=…; 0: fine-tune)",
    )
