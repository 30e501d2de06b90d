"""The record that every reader returns: images, labels, class names, and which split each image belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facetric.images.preprocessing import Fit
from facetric.images.sources import Arrays, Files, ImageSource, prepare

SPLITS = ("train", "validation", "test")
_WAYS_OUT = {
    "train": "lower test_fraction (--set data.options.test_fraction=0.5), or check the split column",
    "validation": "with_validation() holds out some of the training classes (--set data.validation_fraction=0.2 in training)",
    "test": "raise test_fraction (--set data.options.test_fraction=0.5), or check the split column",
}


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """Labeled images with a class-disjoint split: no class is in two splits, so evaluation is always on unseen classes.

    * ``images``: paths, or a uint8 array (n, height, width) of grayscale images in memory;
    * ``labels`` (n,): index into ``class_names``;
    * ``splits`` (n,): "train", "validation" or "test" for each image.

    ``shared_classes=True`` allows classes in more than one split.
    """

    name: str
    images: Sequence[Path] | NDArray[np.uint8]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    splits: NDArray[np.str_]
    shared_classes: bool = False

    def __post_init__(self) -> None:
        assert len(self.images) == len(self.labels) == len(self.splits)
        home: dict[int, str] = {}
        pairs = () if self.shared_classes else set(zip(self.labels.tolist(), self.splits.tolist(), strict=True))
        for label, split in sorted(pairs):
            if label in home:
                raise ValueError(
                    f"class {self.class_names[label]!r} is in the {home[label]} and in the {split} split; splits must share no "
                    "class, or test scores are not on unseen classes: move it to one split, or allow it for a CSV file with "
                    "shared_classes=True (--set data.options.shared_classes=true)"
                )
            home[label] = split

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def source(self) -> Files | Arrays:
        """The images as a network is fed with them."""
        return Arrays(self.images) if isinstance(self.images, np.ndarray) else Files(self.images)

    @property
    def hashes(self) -> NDArray[np.uint8]:
        """The content hash of every image, (n, 16): files are read once."""
        return self.source.hashes

    def prepared(self, split: str, *, size: int, fit: Fit = "stretch", n_threads: int | None = None) -> ImageSource:
        """The images of a split to train on: files are made size × size once (`prepare`), arrays stay as they are."""
        rows = np.flatnonzero(self.splits == split)
        source = self.source.take(rows)
        if isinstance(source, Arrays) or len(source) == 0:
            return source
        source.hashes = self.hashes[rows]  # of all images at once: the manifest needs them, too
        return prepare(source, size=size, fit=fit, n_threads=n_threads)

    @property
    def n_classes(self) -> int:
        """Classes that have at least one image here."""
        return len(np.unique(self.labels))

    def select(self, split: str) -> ImageDataset:
        """The images of one split, in order. Labels still index the full list of class names."""
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}; got {split!r}: choose one of these")
        chosen = np.flatnonzero(self.splits == split)
        if len(chosen) == 0:
            have = ", ".join(dict.fromkeys(self.splits.tolist())) or "none"
            raise ValueError(f"dataset {self.name!r} has no {split} images; it has: {have}: {_WAYS_OUT[split]}")
        return self.take(chosen)

    def take(self, image_ids: NDArray[np.int64], **changes: Any) -> ImageDataset:
        """The images with these positions, in this order; `changes` are other values of the fields."""
        images = self.images[image_ids] if isinstance(self.images, np.ndarray) else [self.images[i] for i in image_ids]
        taken = replace(self, **{"images": images, "labels": self.labels[image_ids], "splits": self.splits[image_ids], **changes})
        if "hashes" in vars(self.source):
            taken.source.hashes = self.hashes[image_ids]
        return taken

    def with_test(self, fraction: float | None = None, *, seed: int = 0) -> ImageDataset:
        """The same images with a random fraction of the *classes* for testing, the others for training; 1 tests on all.

        Without a fraction a third of the classes test, and at least two: within one, every neighbor is right.
        """
        n_classes = len(self.class_names)
        if n_classes < 2:
            raise ValueError(
                f"{self.name}: a dataset needs at least 2 classes to compare; found {n_classes} ({self.class_names[0]!r}): "
                "add another class"
            )
        if fraction is None:
            fraction = min(max(2, round(n_classes / 3)), n_classes - 1) / n_classes
        if not 0 <= fraction <= 1:
            raise ValueError(
                f"test_fraction must be between 0 and 1; got {fraction}: 0.5 tests on half of the classes "
                "(--set data.options.test_fraction=0.5)"
            )
        n_test = round(fraction * n_classes)
        if 0 < fraction < 1 and not 0 < n_test < n_classes:
            raise ValueError(
                f"test_fraction={fraction} of {n_classes} classes leaves {n_test} to test and {n_classes - n_test} to train: "
                "both need at least one; change it (--set data.options.test_fraction=0.5)"
            )
        tests = np.random.default_rng(seed).permutation(n_classes)[:n_test]
        return replace(self, splits=np.where(np.isin(self.labels, tests), "test", "train"))

    def with_validation(self, fraction: float = 0.2, *, seed: int = 0) -> ImageDataset:
        """The same dataset with a random fraction of its training *classes* moved to the validation split."""
        if not 0 < fraction < 1:
            raise ValueError(
                f"the fraction of validation classes must be between 0 and 1; got {fraction}: 0.2 is typical "
                "(--set data.validation_fraction=0.2)"
            )
        train_classes = np.unique(self.labels[self.splits == "train"])
        n_validation = round(fraction * len(train_classes))
        if not 0 < n_validation < len(train_classes):
            raise ValueError(
                f"a fraction of {fraction} of {len(train_classes)} training classes leaves {n_validation} for validation and "
                f"{len(train_classes) - n_validation} for training: both need at least one; change it "
                "(--set data.validation_fraction=…)"
            )
        chosen = np.random.default_rng(seed).permutation(train_classes)[:n_validation]
        moved = np.isin(self.labels, chosen) & (self.splits == "train")
        return replace(self, splits=np.where(moved, "validation", self.splits))
