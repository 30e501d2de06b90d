"""Batches of tensors, from arrays in memory, from the prepared cache or from files, made by threads ahead of their use.

Threads are enough: Pillow and the crop kernel release the GIL, and nothing has to be copied between processes. What a batch
contains, augmentation included, depends on the seed and the batch's number alone, not on threads, ranks or where the run was
resumed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from facetric.images.decoding import open_image
from facetric.images.prepared import PreparedImages
from facetric.images.preprocessing import Transform, resized
from facetric.losses.sampler import ClassBalancedBatches

Images = NDArray[np.uint8] | PreparedImages | Sequence[Path]
Result = TypeVar("Result")


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
        transform: Transform,
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
        _check_threads(n_threads)

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
        return Batch(views(self.images, rows, draws[first : first + len(rows)], self.transform), self.labels[rows], rows)


def views_in_order(images: Images, transform: Transform, *, batch_size: int = 128) -> Iterator[partial[Tensor]]:
    """Tasks that make every image once, in order, as float32 (≤ batch_size, channels, crop, crop): what evaluation embeds."""
    if transform.n_draws:
        raise ValueError(f"{type(transform).__name__} is random; images are evaluated as they are: use CenterCrop")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1; got {batch_size}: 128 is customary")
    starts = range(0, len(images), batch_size)
    blocks = (np.arange(start, min(start + batch_size, len(images))) for start in starts)
    return (partial(views, images, rows, np.empty((len(rows), 0)), transform) for rows in blocks)


def views(images: Images, rows: NDArray[np.int64], draws: NDArray[np.float64], transform: Transform) -> Tensor:
    """The images in these rows, transformed with their draws (len(rows), n_draws): float32 (len(rows), channels, crop, crop)."""
    if isinstance(images, PreparedImages):
        return transform.apply(images.pixels, draws, rows=images.rows[rows])
    if isinstance(images, np.ndarray):
        return transform.apply(images, draws, rows=rows)
    pictures = [open_image(images[row], at_least=2 * transform.format.size) for row in rows]
    return transform.apply(resized(pictures, size=transform.format.size, channels=transform.format.channels), draws)


def take_images(images: Images, image_ids: NDArray[np.int64]) -> Images:
    """The images with these positions, in this order, of the same kind."""
    if isinstance(images, PreparedImages):
        return images.take(image_ids)
    return images[image_ids] if isinstance(images, np.ndarray) else [images[i] for i in image_ids]


def made_ahead(tasks: Iterable[Callable[[], Result]], n_threads: int) -> Iterator[Result]:
    """The results of the tasks in order, each thread a task ahead."""
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="facetric-loader")
    waiting: deque[Future[Result]] = deque()
    try:
        for task in tasks:
            waiting.append(pool.submit(task))
            if len(waiting) > n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _check_threads(n_threads: int) -> None:
    if n_threads < 1:
        raise ValueError(f"n_threads must be at least 1; got {n_threads}: 2 is typical")
