"""From a configuration to batches: which images train and validate, how they are cropped, and the batches of each step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from facetric.embedder.activations import TrunkCache
from facetric.images import CenterCrop, Crop, ImageDataset, Preprocessing, RandomCrop, RandomResizedCrop, made_ahead, prepare
from facetric.images.sources import Images, take_images, views
from facetric.losses import ClassBalancedBatches
from facetric.runs import BatchTable, DataTable


@dataclass(frozen=True, eq=False)
class LabeledImages:
    """Images of one split with their classes.

    `half` are all images outside the test split, and `rows` the positions of this split in it: what is computed once for the half
    serves every choice of validation classes, and runs that train on all of them.
    """

    images: Images
    labels: NDArray[np.int64]  # (n,) 0 … n_classes − 1
    half: Images
    rows: NDArray[np.int64]  # (n,)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def n_classes(self) -> int:
        return len(np.unique(self.labels))


class TrainingBatch(NamedTuple):
    """The input of a training step: this process's part of a batch."""

    inputs: Tensor  # images, or activations of the frozen part
    labels: Tensor  # (m,)
    image_ids: NDArray[np.int64]  # (m,) positions among the training images


class Feed(Protocol):
    """Batches from the current position to the end of the run."""

    def __iter__(self) -> Iterator[TrainingBatch]: ...

    def state_dict(self) -> dict[str, int]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


def split_images(dataset: ImageDataset, config: DataTable, *, validate: bool) -> tuple[LabeledImages, LabeledImages | None]:
    """Training images, and validation images of held-out classes when `validate`. Test images are not touched."""
    kept = np.flatnonzero(dataset.splits != "test")
    half: Images
    if isinstance(dataset.images, np.ndarray):
        half = dataset.images[kept]
    else:
        paths = [dataset.images[i] for i in kept.tolist()]
        half = prepare(paths, size=config.size, name=dataset.name, n_threads=config.threads) if paths else paths
    splits = {}
    for name in ("train", "validation"):
        rows = np.flatnonzero(dataset.splits[kept] == name)
        labels = np.unique(dataset.labels[kept[rows]], return_inverse=True)[1].astype(np.int64)
        splits[name] = LabeledImages(take_images(half, rows), labels, half, rows)
    if len(splits["train"]) == 0:
        raise ValueError(
            f"dataset {config.name!r} has no training images: lower --set data.options.test_fraction=…, or check its split column"
        )
    return splits["train"], splits["validation"] if validate else None


def training_transform(config: DataTable, form: Preprocessing) -> Crop:
    """The augmentation."""
    if config.augment == "none":
        return CenterCrop(form)
    return RandomCrop(form, flip=config.flip) if config.augment == "crop" else RandomResizedCrop(form, flip=config.flip)


def build_sampler(
    split: LabeledImages, config: BatchTable, *, n_steps: int, seed: int, rank: int, world_size: int
) -> ClassBalancedBatches:
    """All batches of the run as one pass, so that nothing stops and starts in between."""
    return ClassBalancedBatches(
        split.labels,
        batch_size=config.size,
        class_ratio=config.class_ratio,
        images_per_class=config.images_per_class,
        n_batches=max(n_steps, 1),
        seed=seed,
        rank=rank,
        world_size=world_size,
    )


class Batch(NamedTuple):
    """What a training step takes."""

    images: Tensor  # (m, channels, crop, crop) float32
    labels: Tensor  # (m,) int64
    image_ids: NDArray[np.int64]  # (m,) positions in the dataset


class BatchLoader:
    """The batches of a sampler as tensors. Iterating goes through the rest of the sampler's pass.

    `position` and `state_dict` count the batches handed out, not those made ahead: a resumed run repeats none and skips none.
    The sampler belongs to its loader and should not be iterated beside it.
    """

    def __init__(
        self,
        images: Images,
        labels: ArrayLike,
        batches: ClassBalancedBatches,
        transform: Crop,
        *,
        n_threads: int = 2,
    ) -> None:
        self.images = images
        self.labels = torch.as_tensor(np.asarray(labels, dtype=np.int64))
        self.batches = batches
        self.transform = transform
        self.n_threads = n_threads
        self.position = batches.position
        if len(images) != len(self.labels):
            raise ValueError(
                f"there must be one label per image; got {len(self.labels)} for {len(images)}: pass those of one dataset"
            )
        if n_threads < 1:
            raise ValueError(f"n_threads must be at least 1; got {n_threads}: 2 is typical")

    def __len__(self) -> int:
        """Batches in a pass."""
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        self.batches.seek(self.position)  # after an abandoned pass the sampler is ahead by the batches made but not used
        start = self.position
        tasks = (partial(self._make, start + i, image_ids) for i, image_ids in enumerate(self.batches))
        for batch in made_ahead(tasks, self.n_threads):
            self.position += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """What an exact resume needs."""
        return {**self.batches.state_dict(), "position": self.position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.batches.load_state_dict(state)
        self.position = self.batches.position

    def _make(self, number: int, image_ids: list[int]) -> Batch:
        # The sampler's generator with another counter word. All ranks draw for the global batch and take their share.
        rng = np.random.Generator(np.random.Philox(key=self.batches.seed, counter=[0, 0, 1, number]))
        draws = rng.random((self.batches.batch_size, self.transform.n_draws))
        first = self.batches.rank * len(image_ids)
        rows = np.array(image_ids, dtype=np.int64)
        made = views(self.images, rows, draws[first : first + len(rows)], self.transform)
        return Batch(torch.from_numpy(made), self.labels[rows], rows)


class LiveFeed:
    """Images cropped afresh for every batch."""

    def __init__(self, split: LabeledImages, sampler: ClassBalancedBatches, transform: Crop, *, n_threads: int) -> None:
        self._loader = BatchLoader(split.images, split.labels, sampler, transform, n_threads=n_threads)

    def __iter__(self) -> Iterator[TrainingBatch]:
        return (TrainingBatch(batch.images, batch.labels, batch.image_ids) for batch in self._loader)

    def state_dict(self) -> dict[str, int]:
        return self._loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._loader.load_state_dict(state)


class CachedFeed:
    """Activations of the frozen part, a random one of the cached views for each image, read by a thread one batch ahead."""

    def __init__(self, split: LabeledImages, sampler: ClassBalancedBatches, cache: TrunkCache) -> None:
        self._labels = torch.from_numpy(split.labels)
        self._sampler, self._cache = sampler, cache
        self._position = sampler.position

    def __iter__(self) -> Iterator[TrainingBatch]:
        tasks = (partial(self._make, number) for number in range(self._position, self._sampler.n_batches))
        for batch in made_ahead(tasks, 1):
            self._position += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        return {**self._sampler.state_dict(), "position": self._position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._sampler.load_state_dict(state)
        self._position = self._sampler.position

    def _make(self, number: int) -> TrainingBatch:
        # The sampler's generator with another counter word. All ranks draw for the global batch and take their part.
        rng = np.random.Generator(np.random.Philox(key=self._sampler.seed, counter=[0, 0, 2, number]))
        views = rng.integers(self._cache.n_views, size=self._sampler.batch_size)
        image_ids = np.array(self._sampler.batch(number), dtype=np.int64)
        first = self._sampler.rank * len(image_ids)
        return TrainingBatch(
            self._cache.batch(image_ids, views[first : first + len(image_ids)]), self._labels[image_ids], image_ids
        )
