"""From a configuration to batches: which images train and validate, how they are cropped, and the batches of each step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from facetric.images import CenterCrop, Crop, ImageDataset, ImageSource, Preprocessing, RandomCrop
from facetric.losses import ClassBalancedBatches
from facetric.machine import made_ahead
from facetric.runs import DataTable
from facetric.text import class_fingerprint


@dataclass(frozen=True, eq=False)
class LabeledImages:
    """Images of one split with their classes."""

    images: ImageSource
    labels: NDArray[np.int64]  # (n,) 0 … n_classes − 1

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def n_classes(self) -> int:
        return len(np.unique(self.labels))

    def __str__(self) -> str:
        return f"{len(self):,} images of {self.n_classes:,} classes"


class TrainingBatch(NamedTuple):
    """The input of a training step: this process's part of a batch."""

    inputs: Tensor  # (m, …) float32: images, or activations of the frozen part
    labels: Tensor  # (m,) int64
    image_ids: NDArray[np.int64]  # (m,) positions among the training images


def split_images(dataset: ImageDataset, config: DataTable, *, validate: bool) -> tuple[LabeledImages, LabeledImages | None]:
    """Training images, and validation images of held-out classes when `validate`. Test images are not touched."""
    if "train" not in dataset.splits:
        raise ValueError(
            f"dataset {config.name!r} has no training images: lower --set data.options.test_fraction=…, or check its split column"
        )

    def labeled(split: str) -> LabeledImages:
        labels = np.unique(dataset.labels[dataset.splits == split], return_inverse=True)[1].astype(np.int64)
        return LabeledImages(dataset.prepared(split, size=config.size, fit=config.fit, n_threads=config.threads), labels)

    return labeled("train"), labeled("validation") if validate else None


def classes_tested(dataset: ImageDataset) -> str:
    """How many classes test, with their fingerprint."""
    labels = np.unique(dataset.labels[dataset.splits == "test"])
    return f"{len(labels):,} ({class_fingerprint(dataset.class_names, labels)})" if len(labels) else "none"


def training_transform(config: DataTable, form: Preprocessing) -> Crop:
    """The augmentation."""
    return CenterCrop(form) if config.augment == "none" else RandomCrop(form, flip=config.flip)


class Feed:
    """The batches of a sampler as tensors, from the current position to the end of the run, made ahead by threads.

    `position` and `state_dict` count the batches handed out, not those made ahead: a resumed run repeats none and skips none.
    """

    def __init__(
        self,
        images: ImageSource,
        labels: ArrayLike,
        batches: ClassBalancedBatches,
        transform: Crop,
        *,
        n_threads: int | None = None,
    ) -> None:
        self.images = images
        self.labels = torch.as_tensor(np.asarray(labels, dtype=np.int64))
        self.batches = batches
        self.transform = transform
        self.n_threads = n_threads
        self.position = batches.position

    def __iter__(self) -> Iterator[TrainingBatch]:
        n_batches = self.batches.n_batches
        numbers = range(self.position, (self.position // n_batches + 1) * n_batches)
        for batch in made_ahead(map(partial, repeat(self._make), numbers), self.n_threads):
            self.position += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """What an exact resume needs."""
        return {**self.batches.identity, "position": self.position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.batches.load_state_dict(state)
        self.position = self.batches.position

    def _make(self, number: int) -> TrainingBatch:
        # The sampler's generator with another counter word. All ranks draw for the global batch and take their share.
        rng = np.random.Generator(np.random.Philox(key=self.batches.seed, counter=[0, 0, 1, number]))
        draws = rng.random((self.batches.batch_size, self.transform.n_draws))
        rows = np.array(self.batches.batch(number), dtype=np.int64)
        first = self.batches.rank * len(rows)
        made = self.images.inputs(rows, self.transform, draws[first : first + len(rows)])
        return TrainingBatch(torch.from_numpy(made), self.labels[rows], rows)
