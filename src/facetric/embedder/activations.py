"""Training on a CPU: the frozen first part of the network runs once per image and view, and its activations are cached on disk.

A cache belongs to one list of images, one trunk (the hash of its weights), one way to crop, one seed and the versions of the code
that decides the activations; later runs with the same ones reuse it. View v of image i is a random crop that depends on the seed,
i and v alone. A build that is killed resumes where it stopped. `data/array_file.py` describes the file.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Generator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from facetric.embedder.encode import batch_size_for, inference, outputs_in_order
from facetric.embedder.network import WHOLE, Network
from facetric.images.array_file import ArrayFile, cache_folder
from facetric.images.cache_key import Description, activation_versions, described_files, images_key, preparation_versions
from facetric.images.prepared import PreparedImages
from facetric.images.preprocessing import CenterCrop, Crop, Preprocessing, RandomCrop
from facetric.images.sources import Images, views
from facetric.progress import Progress, progress_bar

_log = logging.getLogger("facetric")


@dataclass(frozen=True, eq=False)
class TrunkCache:
    """Activations of the frozen part. Views 0 … n_views − 1 are random crops, in float16; `center_view` is the central one.

    Image i is ``activations[rows[i]]``.
    """

    file: ArrayFile
    activations: NDArray[np.floating]  # (n_file, n_views + 1 with the central one, ...), a read-only memory map
    rows: NDArray[np.int64]  # (n_images,)
    n_views: int
    center_view: int | None
    starts_at: ClassVar[str] = "activations"

    def __len__(self) -> int:
        """Images."""
        return len(self.rows)

    def take(self, image_ids: ArrayLike) -> TrunkCache:
        """The images with these positions, in this order, from the same file."""
        return replace(self, rows=self.rows[np.asarray(image_ids, dtype=np.int64)])

    @property
    def nbytes(self) -> int:
        """Size of the file."""
        return self.file.path.stat().st_size

    def batch(self, image_ids: ArrayLike, view_ids: ArrayLike) -> Tensor:
        """Activations of these images, each in its view: float32 (m, ...), what `embedder.from_activations` takes."""
        images, chosen = np.asarray(image_ids, dtype=np.int64), np.asarray(view_ids, dtype=np.int64)
        if images.shape != chosen.shape or images.ndim != 1:
            raise ValueError(f"a batch needs one view per image; got shapes {images.shape} and {chosen.shape}: pass two lists")
        n_images, n_views = len(self.rows), self.activations.shape[1]
        for what, ids, n in (("image_ids", images, n_images), ("view_ids", chosen, n_views)):
            if len(ids) and not 0 <= ids.min() <= ids.max() < n:
                raise ValueError(
                    f"{what} must lie between 0 and {n - 1}; got {ids.min()} to {ids.max()}: pass those of this cache"
                )
        return torch.from_numpy(self.activations[self.rows[images], chosen]).float()

    def inputs(self, rows: NDArray[np.int64], crop: Crop, draws: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        """The central views of these images, view 0 where there is none: what `encode` takes from it."""
        found: NDArray[np.float32] = self.batch(rows, np.full(len(rows), self.center_view or 0)).numpy()
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return _mapped, (
            self.file,
            self.n_views,
            self.center_view,
            self.rows,
        )  # another process maps the file instead of copying it


def build_trunk_cache(
    embedder: Network,
    images: Images,
    *,
    n_views: int = 4,
    seed: int = 0,
    center: bool = False,
    transform: Crop | None = None,
    folder: Path | None = None,
    on_progress: Progress | None = None,
) -> TrunkCache:
    """The cached activations of these images (paths, uint8 array or prepared), which are computed now if they are missing.

    `transform` makes the random views, `RandomCrop` at the backbone's crop unless given; `center` adds the central crop as a last
    view. A cache of central crops alone is for evaluation and holds float32, so that scores are those of the network itself; one
    to train from holds float16. `folder` is `cache_folder()` unless given. Before a build its size is logged, and progress is
    shown in a bar unless `on_progress` is there to be told. A PreparedCacheError if the disk has no room for it.
    """
    if embedder.freeze_through is None:
        raise ValueError(
            "a trunk cache stores activations of the frozen part, and nothing is frozen: set freeze_through "
            "(--set model.freeze_through=…)"
        )
    if n_views < 0 or n_views + center < 1 or len(images) == 0:
        raise ValueError(
            f"a trunk cache needs at least one image and one view; got {len(images)} images, n_views={n_views} and "
            f"center={center}: 4 views are usual (--set model.cached_views=4)"
        )
    transform = RandomCrop(embedder.preprocessing) if transform is None else transform
    key = _key(embedder, images, transform, n_views=n_views, center=center, seed=seed)
    dtype = "float16" if n_views else "float32"
    ending = "f16" if n_views else "f32"
    path = (cache_folder() if folder is None else Path(folder)) / f"trunk-{embedder.name.replace('/', '_')}-{key[:16]}.{ending}"
    shape = (len(images), n_views + center, *_activation_shape(embedder, transform.preprocessing))
    file = ArrayFile(path, key, shape, dtype=dtype, kind="cache of activations")

    def build() -> None:
        size = f"{file.n_bytes / 1e9:.2f} GB" if file.n_bytes > 1e8 else f"{file.n_bytes / 1e6:.1f} MB"
        _log.info(
            "computing activations of %d images in %d view%s through %s, once: %s in %s",
            len(images), shape[1], "s" * (shape[1] > 1), embedder.freeze_through, size, path,
        )  # fmt: skip
        rows = partial(_activations, embedder, images, transform, n_views, center, seed, np.dtype(dtype), on_progress)
        file.write(rows, description=asdict(_description(embedder, images, transform, shape[1])))

    file.ensure(build)
    return _mapped(file, n_views, n_views if center else None)


def _activations(
    embedder: Network,
    images: Images,
    transform: Crop,
    n_views: int,
    center: bool,
    seed: int,
    dtype: np.dtype[np.floating],
    on_progress: Progress | None,
    first: int,
) -> Generator[NDArray[np.floating], None, None]:
    """Blocks (n, n_views + center, ...) of activations, from image `first` on."""
    n_block = max(1, batch_size_for(embedder) // (n_views + center))
    blocks = [np.arange(start, min(start + n_block, len(images))) for start in range(first, len(images), n_block)]
    tasks = (partial(_crops, images, rows, transform, n_views, center, seed) for rows in blocks)
    bar = progress_bar("activations", total=len(images), completed=first) if on_progress is None else nullcontext(on_progress)
    with inference(embedder) as network, bar as progress:
        for rows, activations in zip(blocks, outputs_in_order(network, tasks, network.trunk), strict=True):
            block = activations.to(getattr(torch, dtype.name)).numpy()
            if not np.isfinite(block).all():
                raise ValueError(
                    f"activations through {embedder.freeze_through!r} of images {rows[0]} to {rows[-1]} exceed {dtype}'s range: "
                    "freeze through another module (--set model.freeze_through=…) or train without the cache "
                    "(--set model.cached_views=0)"
                )
            yield block.reshape(len(rows), n_views + center, *block.shape[1:])
            progress(int(rows[-1]) + 1, len(images))


def _crops(images: Images, rows: NDArray[np.int64], transform: Crop, n_views: int, center: bool, seed: int) -> Tensor:
    """All views of these images, image by image: (len(rows) · (n_views + center), channels, crop, crop)"""
    draws = np.stack([_view_draws(seed, int(row), n_views, transform.n_draws) for row in rows])  # (n, n_views, n_draws)
    made = [views(images, rows, draws[:, view], transform) for view in range(n_views)]
    if center:
        made.append(views(images, rows, np.empty((len(rows), 0)), CenterCrop(transform.preprocessing)))
    return torch.stack([torch.from_numpy(crops) for crops in made], dim=1).flatten(0, 1)


def _view_draws(seed: int, image: int, n_views: int, n_draws: int) -> NDArray[np.float64]:
    # The samplers' generator with a counter word of its own.
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 3, image])).random((n_views, n_draws))


def _key(embedder: Network, images: Images, transform: Crop, **settings: int) -> str:
    network = {"backbone": embedder.name, "through": embedder.freeze_through}
    if embedder.freeze_through == WHOLE and embedder.pooling != "average":  # elsewhere pooling comes after the activations
        network["pooling"] = embedder.pooling
    parts = {"kind": "activations", **network, "transform": repr(transform), **settings, **activation_versions()}
    digest = hashlib.sha256(json.dumps(parts).encode())
    if isinstance(images, PreparedImages):
        digest.update(images.file.key.encode() + images.rows.tobytes())
    elif isinstance(images, np.ndarray):
        digest.update(repr(images.shape).encode() + np.ascontiguousarray(images).tobytes())
    else:
        digest.update(images_key(images, transform.preprocessing.size).encode())
    for name, tensor in embedder.trunk_state().items():
        digest.update(name.encode() + tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _description(embedder: Network, images: Images, transform: Crop, n_views: int) -> Description:
    name, source = "", None
    if isinstance(images, PreparedImages):
        prepared = images.file.description()
        name, source = prepared.get("name", ""), prepared.get("source")
    elif not isinstance(images, np.ndarray):
        size = transform.preprocessing.size
        source = described_files(images, size, images_key(images, size))
    detail = f"{embedder.name} through {embedder.freeze_through}, {n_views} view{'s' if n_views > 1 else ''}"
    versions = activation_versions() | (preparation_versions() if source else {})
    return Description("activations", name, detail, versions, source)


def _activation_shape(embedder: Network, form: Preprocessing) -> tuple[int, ...]:
    return tuple(embedder.trunk(torch.zeros(1, form.channels, form.crop, form.crop, device=embedder.device)).shape[1:])


def _mapped(file: ArrayFile, n_views: int, center_view: int | None, rows: NDArray[np.int64] | None = None) -> TrunkCache:
    return TrunkCache(file, file.mapped(), np.arange(file.shape[0]) if rows is None else rows, n_views, center_view)
