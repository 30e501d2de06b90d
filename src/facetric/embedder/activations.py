"""Images behind the frozen first part of a network, which runs once per image and view: what makes training on a CPU fast.

Activations are kept by content (`images/cache.py`), in a file for one trunk (the hash of its weights), one way to crop and one
seed. View v of an image is a random crop that depends on the seed, the content and v alone: whatever else is embedded with it,
a later run finds it again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from facetric.embedder.checkpoint import tensors_hash
from facetric.embedder.encode import batch_size_for, inference, outputs_in_order
from facetric.embedder.network import WHOLE, Network
from facetric.images import CenterCrop, Crop, ImageSource, RandomCrop, mapped_array
from facetric.progress import Progress

_log = logging.getLogger("facetric")


@dataclass(eq=False)
class Activations:
    """An ImageSource of activations: random views in float16, and perhaps the central crop.

    Image i is ``values[rows[i]]``, (n_views + 1 with the central one, …), read from the disk when it is used.
    """

    values: NDArray[np.floating]
    rows: NDArray[np.int64]  # (n,)
    names: Sequence[str]
    hashes: NDArray[np.uint8]  # (n, 16)
    n_views: int
    central: int | None  # the view that is the central crop
    starts_at: ClassVar[str] = "activations"

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: ArrayLike) -> Activations:
        chosen = np.asarray(rows, dtype=np.int64)
        names = [self.names[row] for row in chosen]
        return replace(self, rows=self.rows[chosen], names=names, hashes=self.hashes[chosen])

    def inputs(
        self, rows: NDArray[np.int64], crop: Crop | None = None, draws: NDArray[np.float64] | None = None
    ) -> NDArray[np.float32]:
        """Without draws the central view (or view 0); with draws (n, k) the random view that the first of each image names."""
        views = np.full(len(rows), self.central or 0)
        if draws is not None and draws.shape[1]:
            views = (draws[:, 0] * self.n_views).astype(np.int64)
        return np.asarray(self.values[self.rows[rows], views], dtype=np.float32)


def cached_activations(
    network: Network,
    source: ImageSource,
    *,
    n_views: int = 4,
    seed: int = 0,
    center: bool = False,
    transform: Crop | None = None,
    step: str = "Activations",
    progress: Progress | None = None,
) -> Activations:
    """The activations of these images, from the cache; those that are not in it are computed now.

    `transform` makes the random views, `RandomCrop` at the backbone's crop unless given; `center` adds the central crop as a last
    view. Central crops alone are for evaluation and kept in float32, so that scores are those of the network itself.
    """
    if network.freeze_through is None:
        raise ValueError(
            "activations are those of the frozen part, and nothing is frozen: set freeze_through (--set model.freeze_through=…)"
        )
    if n_views < 0 or n_views + center < 1 or len(source) == 0:
        raise ValueError(
            f"activations need at least one image and one view; got {len(source)} images, n_views={n_views} and "
            f"center={center}: 4 views are usual (--set model.cached_views=4)"
        )
    transform = RandomCrop(network.preprocessing) if transform is None else transform
    total, form = n_views + center, transform.preprocessing
    blank = torch.zeros(1, form.channels, form.crop, form.crop, device=network.device)
    about = {"backbone": network.name, "freeze_through": network.freeze_through}
    if network.freeze_through == WHOLE:  # elsewhere pooling comes after the activations
        about["pooling"] = network.pooling
    trunk = tensors_hash(network.trunk_state(), about)
    settings = {"trunk": trunk, "crop": transform, "n_views": n_views, "center": center, "seed": seed}
    with mapped_array(
        source.hashes,
        f"trunk-{network.name}",
        "activations",
        (total, *network.trunk(blank).shape[1:]),
        "float16" if n_views else "float32",
        detail=f"{network.name} through {network.freeze_through}, {total} view{'s' * (total > 1)}",
        settings=settings,
        step=step,
        progress=progress,
    ) as kept:
        if len(kept.missing):
            _log.info(
                "computing activations of %d images in %d view%s through %s, once: %.1f MB in %s",
                len(kept.missing), total, "s" * (total > 1), network.freeze_through, len(kept.missing) * kept.row_bytes / 1e6,
                kept.path,
            )  # fmt: skip
        n_block = max(1, batch_size_for(network) // total)
        blocks = [kept.missing[start : start + n_block] for start in range(0, len(kept.missing), n_block)]
        crops = [partial(_crops, source, transform, n_views, center, seed, rows) for rows in blocks]
        with inference(network) as fast:
            for rows, found in zip(blocks, outputs_in_order(fast, crops, fast.trunk), strict=True):
                block = found.to(getattr(torch, kept.dtype)).numpy()  # NumPy warns where this overflows
                if not np.isfinite(block).all():
                    raise ValueError(
                        f"activations through {network.freeze_through!r} of images {rows[0]} to {rows[-1]} exceed "
                        f"{kept.dtype}'s range: freeze through another module (--set model.freeze_through=…) or train without "
                        "the cache (--set model.cached_views=0)"
                    )
                kept.write(block.reshape(len(rows), *kept.shape))
    return Activations(kept.values, kept.rows, source.names, source.hashes, n_views, n_views if center else None)


def _crops(
    source: ImageSource, transform: Crop, n_views: int, center: bool, seed: int, rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """All views of these images, image by image: (len(rows) · (n_views + center), channels, crop, crop)"""
    draws = np.empty((len(rows), n_views, transform.n_draws))
    for i, row in enumerate(rows):
        counter = [0, *source.hashes[row].view("<u8").tolist(), 3]
        draws[i] = np.random.Generator(np.random.Philox(key=seed, counter=counter)).random(draws.shape[1:])
    made = [source.inputs(rows, transform, draws[:, view]) for view in range(n_views)]
    if center:
        made.append(source.inputs(rows, CenterCrop(transform.preprocessing)))
    return np.stack(made, axis=1).reshape(-1, *made[0].shape[1:])
