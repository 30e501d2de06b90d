"""Batches for the clustering loss: m images from C distinct classes, each class at least once, no image twice.

Batch t of a seed is a function of the seed and t alone. Resuming only needs t, and every process of a
distributed run computes the same global batch and takes its part without communication.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


class ClassBalancedBatches:
    """A batch sampler for torch's DataLoader (or for anything that takes lists of image positions).

    Two ways to fill a batch of m = `batch_size` images:

    * `class_ratio` (the paper's; default 0.25): C = round(class_ratio · m) classes at random, one image at random
      from each, and m − C more at random from all other images of these classes. Classes may be small, but C classes that
      hold fewer than m images cannot fill a batch: then the smallest is replaced by a random larger one until they can.
    * `images_per_class` (P×K): P = m / K classes at random and K images at random from each. Classes with fewer than K images
      are never drawn; `n_left_out` counts them.

    Batches are independent of each other and in random order inside. A pass has `n_batches` of them, by default as many as the
    images fill. Iterating continues from `position`, the number of batches drawn so far, to the end of the pass.

    With `world_size` processes, each takes its contiguous part of the same global batch, in the order of ranks: together they
    train on exactly what one process would. The batch size is that of the global batch. (Lightning Fabric replaces samplers
    unless it is told `use_distributed_sampler=False`.)
    """

    def __init__(
        self,
        labels: ArrayLike,
        *,
        batch_size: int = 128,
        class_ratio: float | None = None,
        images_per_class: int | None = None,
        n_batches: int | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.batch_size = batch_size
        self.images_per_class = images_per_class
        self.classes_per_batch = _classes_per_batch(batch_size, class_ratio, images_per_class)
        self.seed, self.rank, self.world_size = seed, rank, world_size
        self.position = 0
        _check_ranks(batch_size, rank, world_size)
        if not _is_whole(seed) or not 0 <= seed < 2**64:
            raise ValueError(f"seed must be a whole number from 0 to 2**64 − 1; got {seed!r}: choose another")

        labels = np.asarray(labels)
        if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
            raise ValueError(
                f"labels must be integers, one per image; got {labels.dtype} of shape {labels.shape}: pass dataset.labels"
            )
        _, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        eligible = np.flatnonzero(sizes >= (images_per_class or 1))
        self.n_left_out = len(sizes) - len(eligible)
        self._images = np.argsort(codes, kind="stable")  # by class, in the order of the dataset inside
        self._starts = (np.cumsum(sizes) - sizes)[eligible]  # (n_eligible,) where each class begins in _images
        self._sizes = sizes[eligible]
        self.identity = {  # what decides the batches
            "seed": seed,
            "batch_size": batch_size,
            "classes_per_batch": self.classes_per_batch,
            "images_per_class": images_per_class or 0,
            "n_images": len(labels),
            "labels_checksum": zlib.crc32(codes.astype(np.int64).tobytes()),
        }
        self._check_classes()
        self.n_batches = max(1, len(labels) // batch_size) if n_batches is None else n_batches
        if not _is_whole(self.n_batches) or self.n_batches < 1:
            raise ValueError(
                f"a pass needs at least one batch; got n_batches={n_batches!r}: leave it out for one pass over the images"
            )

    def __len__(self) -> int:
        """Batches in a pass."""
        return self.n_batches

    def __iter__(self) -> Iterator[list[int]]:
        end = self.position - self.position % self.n_batches + self.n_batches
        while self.position < end:
            self.position += 1
            yield self.batch(self.position - 1)

    def batch(self, number: int) -> list[int]:
        """This rank's part of batch `number`, counted from 0 through all passes."""
        share = self.batch_size // self.world_size
        images: list[int] = self.global_batch(number)[self.rank * share : (self.rank + 1) * share].tolist()
        return images

    def global_batch(self, number: int) -> NDArray[np.int64]:
        """The image positions of batch `number`, all ranks together. (batch_size,)"""
        # A counter-based generator starts at any batch at once; the counter's upper word keeps batches apart.
        rng = np.random.Generator(np.random.Philox(key=self.seed, counter=[0, 0, 0, number]))
        classes = rng.choice(len(self._sizes), self.classes_per_batch, replace=False)
        if self.images_per_class is not None:
            places = self._images_of_each(rng, classes, self.images_per_class)
        else:
            places = self._images_of_all(rng, self._large_enough(rng, classes))
        images: NDArray[np.int64] = self._images[rng.permutation(places)]
        return images

    def seek(self, position: int) -> None:
        """Continue from this batch. A DataLoader with workers draws ahead of training: seek to the batches trained on."""
        if position < 0:
            raise ValueError(f"position is a number of batches, 0 or more; got {position}: 0 starts from the beginning")
        self.position = position

    def state_dict(self) -> dict[str, int]:
        """What an exact resume needs: the position, and the settings that must be the same."""
        return {"position": self.position, **self.identity}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken; ranks and pass length may differ, settings that decide the batches may not."""
        for name, value in self.identity.items():
            if name not in state or state[name] != value:
                raise ValueError(
                    f"this sampler cannot resume from that state: {name} is {value} here and {state.get(name, 'missing')} there; "
                    "build it with the same labels and settings"
                )
        if "position" not in state:
            raise ValueError("the sampler's state has no position: pass what state_dict() returned")
        self.seek(int(state["position"]))

    def _check_classes(self) -> None:
        rule = f"a batch of {self.batch_size} needs {self.classes_per_batch} distinct classes"
        n_eligible = len(self._sizes)
        if n_eligible < self.classes_per_batch:
            kind = "classes" if self.images_per_class is None else f"classes with {self.images_per_class} images or more"
            way_out = "class_ratio"
            if self.images_per_class is not None:
                way_out = f"batch_size to {n_eligible * self.images_per_class}" if n_eligible > 1 else "images_per_class"
            raise ValueError(f"{rule}; the training set has {n_eligible} {kind}: lower {way_out}")
        most = int(np.sort(self._sizes)[-self.classes_per_batch :].sum())
        if self.images_per_class is None and most < self.batch_size:
            raise ValueError(
                f"{rule} that hold {self.batch_size} images together; the {self.classes_per_batch} largest hold {most}: "
                "raise class_ratio or lower batch_size"
            )

    def _large_enough(self, rng: np.random.Generator, classes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The classes, after exchanges of the smallest (the first among equals) for a random larger one that is not there yet."""
        while self._sizes[classes].sum() < self.batch_size:
            smallest = int(np.argmin(self._sizes[classes]))
            larger = np.setdiff1d(np.flatnonzero(self._sizes > self._sizes[classes[smallest]]), classes)
            classes[smallest] = rng.choice(larger)  # never empty: the largest classes together hold a batch
        return classes

    def _images_of_all(self, rng: np.random.Generator, classes: NDArray[np.int64]) -> NDArray[np.int64]:
        """One place in `_images` from each class, and the rest of the batch from all that are left in these classes."""
        sizes = self._sizes[classes]
        ends = np.cumsum(sizes)
        pool = np.repeat(self._starts[classes] - (ends - sizes), sizes) + np.arange(ends[-1])  # class by class
        one_each = ends - sizes + rng.integers(sizes)  # (C,) positions in the pool
        others = np.delete(np.arange(len(pool)), one_each)
        more = rng.choice(others, self.batch_size - self.classes_per_batch, replace=False)
        places: NDArray[np.int64] = pool[np.concatenate([one_each, more])]
        return places

    def _images_of_each(self, rng: np.random.Generator, classes: NDArray[np.int64], n_images: int) -> NDArray[np.int64]:
        """`n_images` places in `_images` from each class: those with the smallest of as many random keys as it has images."""
        sizes = self._sizes[classes]
        keys = rng.random((len(classes), int(sizes.max())))
        keys[np.arange(keys.shape[1]) >= sizes[:, None]] = np.inf  # beyond the end of the class
        within = np.argpartition(keys, n_images - 1, axis=1)[:, :n_images]
        places: NDArray[np.int64] = (self._starts[classes, None] + within).ravel()
        return places


def _classes_per_batch(batch_size: int, class_ratio: float | None, images_per_class: int | None) -> int:
    """C or P; refuses impossible settings and those whose loss is always 0."""
    given: dict[str, object] = {"batch_size": batch_size, "class_ratio": class_ratio, "images_per_class": images_per_class}
    for name, value in given.items():
        if value is None and name != "batch_size":
            continue
        if not _is_whole(value) and not (name == "class_ratio" and isinstance(value, float | np.floating)):
            raise ValueError(f"{name} must be a number; got {value!r}: 128 images with class_ratio=0.25 are usual")
    if class_ratio is not None and images_per_class is not None:
        raise ValueError(
            f"class_ratio ({class_ratio}) and images_per_class ({images_per_class}) both set the classes per batch: give one"
        )
    if images_per_class is not None:
        if images_per_class < 1 or batch_size % images_per_class:
            raise ValueError(
                f"batch_size ({batch_size}) must be a multiple of images_per_class ({images_per_class}): change one of them"
            )
        n_classes = batch_size // images_per_class
        setting = f"batch_size {batch_size} with images_per_class {images_per_class}"
    else:
        ratio = 0.25 if class_ratio is None else class_ratio
        if not 0 < ratio <= 1:
            raise ValueError(f"class_ratio is classes per image, between 0 and 1; got {ratio}: the paper has 0.25 and 0.75")
        n_classes = round(ratio * batch_size)
        setting = f"batch_size {batch_size} with class_ratio {ratio}"
    if n_classes < 2:
        raise ValueError(
            f"{setting} gives {max(n_classes, 0)} class per batch: one cluster is always right, so the loss is always 0; "
            "use 2 classes or more"
        )
    if n_classes >= batch_size:
        raise ValueError(
            f"{setting} gives every image its own class: each is its own medoid, so the loss is always 0; "
            "use fewer classes than images"
        )
    return n_classes


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _check_ranks(batch_size: int, rank: int, world_size: int) -> None:
    if not (_is_whole(rank) and _is_whole(world_size)) or world_size < 1 or not 0 <= rank < world_size:
        raise ValueError(
            f"rank must be from 0 to world_size − 1; got rank {rank!r} of {world_size!r}: pass those of the process group"
        )
    if batch_size % world_size:
        raise ValueError(
            f"batch_size ({batch_size}) must be a multiple of world_size ({world_size}), for equal shares: change it"
        )
