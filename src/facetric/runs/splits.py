"""The images of a run: split once when it starts, afterwards those of its manifest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from facetric.images import ImageDataset, load_dataset, load_present
from facetric.runs.config import DataTable
from facetric.runs.manifest import DataChanges
from facetric.text import name_some

if TYPE_CHECKING:
    from facetric.runs.run import Run

SPLITS = ("test", "validation", "train")


def new_images(data: DataTable, *, validate: bool, dataset: ImageDataset | None = None) -> ImageDataset:
    """The dataset of a new run, with validation classes held out from the training classes; `dataset` if it is loaded already."""
    if dataset is None:
        dataset = load_dataset(data.name, data.root, **data.options)
    if data.all_classes:
        return replace(dataset, splits=np.full(len(dataset.labels), "train"))
    if validate and "validation" not in dataset.splits:
        dataset = dataset.with_validation(data.validation_fraction, seed=data.validation_seed)
    return dataset


def resumed_images(run: Run, *, accept_changes: bool = False) -> tuple[ImageDataset, DataChanges]:
    """All images of a resumed run. Training images that are missing or have changed since it started are refused.

    `accept_changes` accepts changed content; missing images are always refused.
    """
    data, manifest = run.config.data, run.manifest
    dataset, changes = manifest.match(_current_dataset(run), data.root)
    trained = {name for name, split in zip(manifest.images, manifest.splits, strict=True) if split != "test"}
    gone = [name for name in (*changes.removed, *changes.leaked) if name in trained]
    changed = [name for name in changes.changed if name in trained]
    if gone:
        raise ValueError(
            f"{_counted(gone)} needed to resume {run.path} cannot be found ({name_some(gone)}): restore them in {data.root}, or "
            "train again"
        )
    if changed and not accept_changes:
        raise ValueError(
            f"{_counted(changed)} changed since {run.path} started ({name_some(changed)}): restore them, or continue "
            f"with `{run.resume_command} --accept-changes`"
        )
    return dataset, changes


def run_images(run: Run, split: str) -> tuple[ImageDataset, DataChanges]:
    """The images of a split as training saw it and as they are now, and what has changed in that split since."""
    n_images, n_classes = run.manifest.count(split)
    if n_images == 0:
        have = ", ".join(name for name in SPLITS if run.manifest.count(name)[0])
        way_out = f"pass --split with one of {have}"
        if split == "validation":
            way_out = f"its validation was off (run.validate_every = 0) or it had too few classes; {way_out}"
        elif split == "test":
            way_out = f"all of its classes were trained on; {way_out}, or train with test classes held out"
        raise ValueError(f"{run.path} has no {split} images: {way_out}")
    data = run.config.data
    matched, changes = run.manifest.match(_current_dataset(run), data.root, splits=(split,))
    if len(np.unique(matched.labels)) < min(2, n_classes):
        raise ValueError(
            f"of the {n_images:,} {split} images of {run.path}, {len(matched):,} are still in {data.root}: restore them, or set "
            "data.root in its config.toml to where they are now"
        )
    return matched, changes


def _counted(names: list[str]) -> str:
    return f"{len(names):,} image{'s' * (len(names) != 1)}"


def _current_dataset(run: Run) -> ImageDataset:
    root = run.config.data.root
    if root is not None and not Path(root).expanduser().exists():
        raise ValueError(f"the data of {run.path} is no longer in {root}: set data.root in {run.config_file} to where it is")
    data = run.config.data
    return load_present(data.name, data.root, **data.options)  # what is gone is named by the manifest
