"""`embed`: pass every image of a dataset through the model, in blocks that survive a crash and are split among processes.

Each image is seen as its center crop (the paper), or as several crops and flips whose embeddings are averaged (`EvalCrops`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from facetric.embedder import Network
from facetric.embedder.activations import build_trunk_cache, embed_activations
from facetric.embedder.embeddings import PREFIX, BlockFolder, Embeddings
from facetric.embedder.encode import batch_size_for, inference, outputs_in_order
from facetric.embedder.input_spec import image_format
from facetric.images import ImageDataset, PreparedImages, Preprocessing, RandomCrop, prepare, views_in_order
from facetric.images.sources import Images, take_images
from facetric.progress import Progress

VIEWS = {
    1: "center crop",
    2: "center crop and its flip",
    5: "center and four corner crops",
    10: "center and four corner crops, and their flips",
}
_CENTER = ((1, 1),)  # halves of the free pixels above and to the left
_CORNERS = ((0, 0), (0, 2), (2, 0), (2, 2))


@dataclass(frozen=True)
class EvalCrops:
    """All views of each image: n images → (n_views · n, channels, crop, crop), view by view. Nothing is random."""

    preprocessing: Preprocessing
    n_views: int = 1
    n_draws: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if self.n_views not in VIEWS:
            offer = "; ".join(f"{n} ({name})" for n, name in VIEWS.items())
            raise ValueError(f"views must be one of {offer}; got {self.n_views}: choose one of these")

    @property
    def name(self) -> str:
        return VIEWS[self.n_views]

    def __call__(self, images: NDArray[np.uint8], rng: np.random.Generator | None = None) -> NDArray[np.float32]:
        return self.apply(images, np.empty((len(images), 0)))

    def apply(
        self, images: NDArray[np.uint8], draws: NDArray[np.float64], *, rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.float32]:
        crop = RandomCrop(self.preprocessing)  # with draws that are not random: it takes ⌊draw · (free + 1)⌋ pixels
        free = [max(side - self.preprocessing.crop, 0) for side in images.shape[1:3]]
        places = _CENTER if self.n_views <= 2 else _CENTER + _CORNERS
        views = []
        for flip in (False, True) if self.n_views % 2 == 0 else (False,):
            for place in places:
                top, left = ((pixels * half // 2 + 0.5) / (pixels + 1) for pixels, half in zip(free, place, strict=True))
                fixed = np.tile([top, left, 0.0 if flip else 1.0], (len(draws), 1))
                views.append(crop.apply(images, fixed, rows=rows))
        return np.concatenate([view.transpose(0, 2, 3, 1) for view in views]).transpose(0, 3, 1, 2)  # channels stay last


def average_views(vectors: Tensor, n_views: int, *, normalize: bool) -> Tensor:
    """Vectors (n_views · n, d), view by view, → their means (n, d), of length one again if they were."""
    if n_views == 1:
        return vectors
    means = vectors.reshape(n_views, -1, vectors.shape[1]).mean(dim=0)
    return torch.nn.functional.normalize(means, dim=1) if normalize else means


def embed(
    embedder: Network,
    images: ImageDataset | Images,
    *,
    labels: ArrayLike | None = None,
    views: int = 1,
    size: int = 256,
    features: bool = False,
    batch_size: int | None = None,
    block_size: int = 2048,
    folder: str | os.PathLike[str] | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    patience: float = 3600.0,
    on_progress: Progress | None = None,
) -> Embeddings:
    """The embeddings of all images, in order.

    * ``images``: a dataset (one split: `dataset.select("test")`), or paths, prepared images or an array of grayscale pictures
      with ``labels``. Files are stretched to ``size`` × ``size`` and cropped to what the backbone takes.
    * ``views``: 1 (center crop), 2, 5 or 10; the embeddings of several views are averaged.
    * ``features``: the backbone's pooled features (of length one if the embedder normalizes) instead of embeddings.
    * ``batch_size``: crops per forward pass, by default as many as suit the device. On a CPU torch's threads each run their own.
    * ``folder``: where finished blocks of ``block_size`` images are kept until all are done; a killed run resumes from them.
    * ``rank``, ``world_size``: the rank and number of processes; by default those of torchrun (RANK, WORLD_SIZE). Several
      processes need a ``folder`` that all of them see. Rank 0 waits for the others, at most ``patience`` seconds without a new
      block, and returns everything; the others return their own part.
    """
    dataset_images, class_labels = _unpacked(images, labels)
    n = len(dataset_images)
    if n == 0:
        raise ValueError("there are no images to embed: check the dataset and its split")
    batch_size = batch_size_for(embedder) if batch_size is None else batch_size
    if batch_size < 1 or block_size < 1:
        raise ValueError(
            f"batch_size and block_size must be at least 1; got {batch_size} and {block_size}: leave them out for usual values"
        )
    rank, world_size = _place(rank, world_size, folder)
    transform = EvalCrops(image_format(embedder.input_spec, dataset_images, size=size), views)
    names = image_names(dataset_images)
    source = {"views": transform.name, "n_views": views, "features": features, "crop": transform.preprocessing.crop}
    key = "" if folder is None else _key(embedder, dataset_images, names, transform, source, batch_size, block_size)
    blocks = BlockFolder(Path(folder or "."), key, n, block_size)
    share = blocks.share(rank, world_size)
    kept = []  # vectors, when there is no folder
    n_share = min(share[-1] + block_size, n) - share[0] if len(share) else 0
    with inference(embedder) as network:
        for start in share:
            rows = np.arange(start, min(start + block_size, n))
            if folder is None or not blocks.has(start):
                done = start - share[0]
                tell = None if on_progress is None else lambda more, done=done: on_progress(done + more, n_share)
                vectors = _block(network, take_images(dataset_images, rows), transform, features, batch_size, tell)
                kept.append(vectors) if folder is None else blocks.write(start, vectors)
            elif on_progress is not None:
                on_progress(int(rows[-1]) + 1 - share[0], n_share)
    if folder is None:
        return Embeddings(np.concatenate(kept), class_labels, names, source)
    if rank == 0:
        blocks.wait_for_all(patience=patience, on_progress=lambda done: on_progress(done, n) if on_progress else None)
        return Embeddings(blocks.read(blocks.starts), class_labels, names, source)
    own = slice(share[0], min(share[-1] + block_size, n)) if len(share) else slice(0, 0)
    vectors = (
        blocks.read(share) if len(share) else np.empty((0, embedder.n_features if features else embedder.dim), dtype=np.float32)
    )
    return Embeddings(vectors, class_labels[own], names[own], source)


def embed_cached(embedder: Network, dataset: ImageDataset, size: int) -> Embeddings:
    """The embeddings of a dataset from the cached activations of its central crops, which are computed now if they are missing.

    For `evaluate_run`, where many embedders share their frozen part.
    """
    images = dataset.images if isinstance(dataset.images, np.ndarray) else prepare(dataset.images, size=size, name=dataset.name)
    cache = build_trunk_cache(embedder, images, n_views=0, center=True)
    source = {"views": "center crop", "n_views": 1, "features": False, "crop": embedder.input_spec.size}
    return Embeddings(embed_activations(embedder, cache), dataset.labels, image_names(dataset.images), source)


def remove_blocks(folder: str | os.PathLike[str]) -> None:
    """Remove the blocks that `embed` keeps in a folder, whatever their model, once its result is safe elsewhere."""
    for blocks in Path(folder).glob(f"{PREFIX}*"):
        shutil.rmtree(blocks, ignore_errors=True)
    with suppress(OSError):  # not empty
        Path(folder).rmdir()


def _block(
    embedder: Network,
    images: Images,
    transform: EvalCrops,
    features: bool,
    batch_size: int,
    on_progress: Callable[[int], None] | None,
) -> NDArray[np.float32]:
    """The vectors of one block, its images in batches of batch_size crops."""

    def run(crops: Tensor) -> Tensor:
        vectors = embedder.features(crops) if features else embedder(crops)
        if features and embedder.normalize:
            vectors = torch.nn.functional.normalize(vectors, dim=1)
        return average_views(vectors.float(), transform.n_views, normalize=embedder.normalize)

    found, n_done = [], 0
    tasks = views_in_order(images, transform, batch_size=max(1, batch_size // transform.n_views))
    for vectors in outputs_in_order(embedder, tasks, run):
        found.append(vectors.numpy())
        n_done += len(vectors)
        if on_progress is not None:
            on_progress(n_done)
    return np.concatenate(found)


def _unpacked(images: ImageDataset | Images, labels: ArrayLike | None) -> tuple[Images, NDArray[np.int64]]:
    if isinstance(images, ImageDataset):
        if labels is not None:
            raise ValueError("labels were given beside a dataset, which has its own: leave labels out, or pass dataset.images")
        return images.images, images.labels
    found = np.full(len(images), -1, dtype=np.int64) if labels is None else np.asarray(labels)
    if len(found) != len(images):
        raise ValueError(f"there must be one label per image; got {len(found)} for {len(images)}: pass those of one dataset")
    return images, found


def _place(rank: int | None, world_size: int | None, folder: object) -> tuple[int, int]:
    rank = int(os.environ.get("RANK", "0")) if rank is None else rank
    world_size = int(os.environ.get("WORLD_SIZE", "1")) if world_size is None else world_size
    if not 0 <= rank < world_size:
        raise ValueError(
            f"rank ({rank}) must lie between 0 and world_size − 1 ({world_size - 1}): start the processes with torchrun"
        )
    if world_size > 1 and folder is None:
        raise ValueError(f"{world_size} processes exchange their blocks through a folder: pass folder, one that all of them see")
    return rank, world_size


def image_names(images: Images) -> NDArray[np.str_]:
    """What embeddings.npz calls the images: paths, or their numbers where they are in memory."""
    if isinstance(images, np.ndarray):
        return np.array([f"#{i}" for i in range(len(images))])
    if isinstance(images, PreparedImages):
        return np.array([f"{images.path.name}#{row}" for row in images.rows])
    return np.array([str(image) for image in images])


def _key(
    embedder: Network,
    images: Images,
    names: NDArray[np.str_],
    transform: EvalCrops,
    source: Mapping[str, object],
    batch_size: int,
    block_size: int,
) -> str:
    """A hash of everything that determines the vectors: weights, images (files by name, size and time), views, batching."""
    network = (embedder.name, embedder.normalize, embedder.normalize_features, embedder.pooling)  # what the weights do not tell
    settings = (network, transform, sorted(source.items()), batch_size, block_size)
    digest = hashlib.sha256(repr(settings).encode())
    for name, tensor in sorted(embedder.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    if isinstance(images, np.ndarray):
        digest.update(np.ascontiguousarray(images).tobytes())
    for name in names.tolist():
        digest.update(os.fsencode(name) + b"\0")
        if not isinstance(images, np.ndarray | PreparedImages):
            status = Path(name).stat() if Path(name).exists() else None  # a missing file is reported when it is opened
            digest.update(f"{status.st_size} {status.st_mtime_ns}\0".encode() if status else b"\0")
    return digest.hexdigest()[:16]
