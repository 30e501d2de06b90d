"""`embed`: every image of a dataset once through the model, in blocks that survive a crash and can be shared by processes."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from facetric.data import ImageDataset, ImageFormat, PreparedImages, views_in_order
from facetric.evaluation.blocks import PREFIX, BlockFolder
from facetric.evaluation.embeddings import Embeddings
from facetric.evaluation.views import TestViews, average_views
from facetric.models import Embedder

Images = NDArray[np.uint8] | PreparedImages | Sequence[Path]
Progress = Callable[[int, int], None]


def embed(
    embedder: Embedder,
    images: ImageDataset | Images,
    *,
    labels: ArrayLike | None = None,
    views: int = 1,
    size: int = 256,
    features: bool = False,
    batch_size: int = 64,
    block_size: int = 2048,
    folder: str | os.PathLike[str] | None = None,
    n_threads: int = 2,
    rank: int | None = None,
    world_size: int | None = None,
    patience: float = 3600.0,
    on_progress: Progress | None = None,
) -> Embeddings:
    """The embeddings of all images, in order.

    * ``images``: a dataset (one split: `dataset.select("test")`), or paths, prepared images or an array of greyscale pictures
      with ``labels``. Files are stretched to ``size`` × ``size`` and cropped to what the backbone takes.
    * ``views``: 1 (centre crop), 2, 5 or 10; the embeddings of several views are averaged.
    * ``features``: the backbone's pooled features (of length one if the embedder normalises) instead of embeddings.
    * ``folder``: where finished blocks of ``block_size`` images are kept until all are done; a killed run goes on from them.
    * ``rank``, ``world_size``: the share of this process; by default those of torchrun (RANK, WORLD_SIZE). Several processes
      need a ``folder`` that all of them see. Rank 0 waits for the others, ``patience`` seconds without news at most, and
      returns everything; the others return their own share.
    """
    dataset_images, class_labels = _unpacked(images, labels)
    n = len(dataset_images)
    if n == 0:
        raise ValueError("there are no images to embed: check the dataset and its split")
    if batch_size < 1 or block_size < 1:
        raise ValueError(
            f"batch_size and block_size must be at least 1; got {batch_size} and {block_size}: 64 and 2048 are usual"
        )
    rank, world_size = _place(rank, world_size, folder)
    transform = TestViews(_format(embedder, dataset_images, size), views)
    names = image_names(dataset_images)
    source = {"views": transform.name, "n_views": views, "features": features, "crop": transform.format.crop}
    key = "" if folder is None else _key(embedder, dataset_images, names, transform, features, batch_size)
    blocks = BlockFolder(Path(folder or "."), key, n, block_size)
    share = blocks.share(rank, world_size)
    kept = []  # vectors that have no folder to go to
    for start in share:
        stop = min(start + block_size, n)
        if folder is None or not blocks.file(start).exists():
            vectors = _block(embedder, _part(dataset_images, start, stop), transform, features, batch_size, n_threads)
            kept.append(vectors) if folder is None else blocks.write(start, vectors)
        if on_progress is not None:
            on_progress(stop - share[0], min(share[-1] + block_size, n) - share[0])
    if folder is None:
        return Embeddings(np.concatenate(kept), class_labels, names, source)
    if rank == 0:
        blocks.wait_for_all(patience=patience, on_progress=lambda done: on_progress(done, n) if on_progress else None)
        return Embeddings(blocks.read(blocks.starts), class_labels, names, source)
    own = slice(share[0], min(share[-1] + block_size, n)) if len(share) else slice(0, 0)
    vectors = blocks.read(share) if len(share) else np.empty((0, embedder.dim), dtype=np.float32)
    return Embeddings(vectors, class_labels[own], names[own], source)


def remove_blocks(folder: str | os.PathLike[str]) -> None:
    """Remove the blocks that `embed` keeps in a folder, whatever their model, once its result is safe elsewhere."""
    for blocks in Path(folder).glob(f"{PREFIX}*"):
        shutil.rmtree(blocks, ignore_errors=True)
    with suppress(OSError):  # something else lies there
        Path(folder).rmdir()


def _block(
    embedder: Embedder, images: Images, transform: TestViews, features: bool, batch_size: int, n_threads: int
) -> NDArray[np.float32]:
    """One block, without gradients and in eval mode; the mode is put back."""
    device = next(embedder.parameters()).device
    was_training = embedder.training
    embedder.eval()
    found = []
    try:
        with torch.inference_mode():
            for batch in views_in_order(images, transform, batch_size=batch_size, n_threads=n_threads):
                vectors = embedder.features(batch.to(device)) if features else embedder(batch.to(device))
                if features and embedder.normalize:
                    vectors = torch.nn.functional.normalize(vectors, dim=1)
                found.append(average_views(vectors.float(), transform.n_views, normalize=embedder.normalize).cpu().numpy())
    finally:
        embedder.train(was_training)
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
            f"rank ({rank}) must lie between 0 and world_size − 1 ({world_size - 1}): start the processes by torchrun"
        )
    if world_size > 1 and folder is None:
        raise ValueError(f"{world_size} processes exchange their blocks through a folder: pass folder, one that all of them see")
    return rank, world_size


def _format(embedder: Embedder, images: Images, size: int) -> ImageFormat:
    spec = embedder.input_spec
    if isinstance(images, np.ndarray):
        size = min(images.shape[1:3])
    elif isinstance(images, PreparedImages):
        size = images.pixels.shape[1]
    if size < spec.size:
        raise ValueError(
            f"pictures of {size} pixels are smaller than the backbone's crop ({spec.size}): pass larger ones, or size"
        )
    return ImageFormat(size=size, crop=spec.size, mean=spec.mean, std=spec.std, channels=spec.channels)


def image_names(images: Images) -> NDArray[np.str_]:
    """What embeddings.npz calls the images: paths, or their numbers where they are in memory."""
    if isinstance(images, np.ndarray):
        return np.array([f"#{i}" for i in range(len(images))])
    if isinstance(images, PreparedImages):
        return np.array([f"{images.path.name}#{row}" for row in images.rows])
    return np.array([str(image) for image in images])


def _part(images: Images, start: int, stop: int) -> Images:
    return images.take(np.arange(start, stop)) if isinstance(images, PreparedImages) else images[start:stop]


def _key(
    embedder: Embedder, images: Images, names: NDArray[np.str_], transform: TestViews, features: bool, batch_size: int
) -> str:
    """A hash of all that decides the vectors: weights, images (files by name, size and time), views, and how they are batched."""
    digest = hashlib.sha256(repr((embedder.name, embedder.normalize, transform, features, batch_size)).encode())
    for name, tensor in sorted(embedder.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    if isinstance(images, np.ndarray):
        digest.update(np.ascontiguousarray(images).tobytes())
    for name in names.tolist():
        digest.update(name.encode() + b"\0")
        if not isinstance(images, np.ndarray | PreparedImages):
            status = Path(name).stat() if Path(name).exists() else None  # a missing file is reported when it is opened
            digest.update(f"{status.st_size} {status.st_mtime_ns}\0".encode() if status else b"\0")
    return digest.hexdigest()[:16]
