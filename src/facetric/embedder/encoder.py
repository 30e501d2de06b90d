"""What turns pictures into vectors, as the rest of this package sees it; `facetric.embedder.Embedder` is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from facetric.embedder import Network
from facetric.embedder.encode import batch_size_for, outputs_in_order
from facetric.embedder.input_spec import InputSpec
from facetric.images import CenterCrop, Preprocessing

BATCH = 32  # pictures decoded at a time


class Encoder(Protocol):
    """Pictures in, vectors out. Pickling it gives another process the same encoder."""

    @property
    def fingerprint(self) -> str:
        """Which encoder this is: vectors can be compared if theirs are equal."""
        ...

    @property
    def dim(self) -> int:
        """The length of a vector."""
        ...

    @property
    def at_least(self) -> int:
        """A JPEG may be decoded at a fraction of its size that leaves this many pixels on each side."""
        ...

    def pixels(self, image: Image.Image) -> NDArray[np.uint8]:
        """An upright picture as the network's input before cropping: (size, size, channels)."""
        ...

    def vectors(self, pixels: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """The vectors (n, dim) of what `pixels` gave."""
        ...


@dataclass(frozen=True)
class PictureFormat:
    """How pictures of any size become what a network was trained on.

    A picture is stretched to `size` × `size`; `pad` black pixels are added on every side (small drawings); the center is cropped.
    """

    size: int
    pad: int = 0


class TakesPictures(Protocol):
    """An embedder, or what was exported of one."""

    @property
    def input_spec(self) -> InputSpec: ...


def picture_pixels(embedder: TakesPictures, image: Image.Image, form: PictureFormat) -> NDArray[np.uint8]:
    """The picture, resized and padded: (size + 2 pad, size + 2 pad, channels)"""
    spec = embedder.input_spec
    found = Preprocessing(size=form.size, crop=1, channels=spec.channels, mean=spec.mean, std=spec.std).pixels(image)
    pad = (form.pad, form.pad)
    return np.pad(found, (pad, pad, (0, 0))) if form.pad else found


def picture_vectors(
    embedder: Network, pixels: Sequence[NDArray[np.uint8]], *, features: bool = False, padded: bool = False
) -> NDArray[np.float32]:
    """Vectors of pictures from `picture_pixels`: embeddings, or the backbone's `features` of length one.

    The embedder is one `for_inference`. The last bits of a vector depend on the size of its batch. With `padded`, batches are
    filled with black pictures, so that a picture has the same vector whatever it is embedded with.
    """
    if not len(pixels):
        return np.empty((0, embedder.n_features if features else embedder.dim), dtype=np.float32)
    spec = embedder.input_spec
    side = pixels[0].shape[0]
    crop = CenterCrop(Preprocessing(size=side, crop=spec.size, mean=spec.mean, std=spec.std, channels=spec.channels))
    size = min(batch_size_for(embedder), BATCH) if padded else batch_size_for(embedder)

    def cropped(start: int) -> NDArray[np.float32]:
        batch = np.stack(pixels[start : start + size])
        missing = size - len(batch) if padded else 0
        return crop(np.concatenate([batch, np.zeros((missing, *batch.shape[1:]), dtype=np.uint8)]) if missing else batch)

    def run(images: Tensor) -> Tensor:
        vectors = embedder.features(images) if features else embedder(images)
        return torch.nn.functional.normalize(vectors, dim=1) if features else vectors

    tasks = (partial(cropped, start) for start in range(0, len(pixels), size))
    found = [vectors.float().numpy() for vectors in outputs_in_order(embedder, tasks, run)]
    return np.concatenate(found)[: len(pixels)]
