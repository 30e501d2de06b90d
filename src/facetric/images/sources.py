"""Where the images of a batch come from: files, or arrays in memory or in the cache of prepared images."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from facetric.images.cache import KEY_BYTES, mapped_array
from facetric.images.decoding import open_image, upright_rgb
from facetric.images.hashing import content_hashes
from facetric.images.listing import list_images
from facetric.images.preprocessing import Crop, Fit, Preprocessing
from facetric.machine import made_ahead
from facetric.progress import Progress

_TAKES = "a path of a photo or a folder, a PIL image, a uint8 array (height, width) or (height, width, 3), or a list of these"


class ImageSource(Protocol):
    """Images that a network can be fed with, whatever they are kept as: Files, Arrays, or embedder.Activations."""

    @property
    def names(self) -> Sequence[str]:
        """What the images are called in results: paths, or #0, #1, … in memory."""
        ...

    @property
    def hashes(self) -> NDArray[np.uint8]:
        """The content hash of every image, (n, 16): what caches know an image by."""
        ...

    @property
    def starts_at(self) -> str:
        """What `inputs` gives: "images", or the "activations" behind the frozen part of a network."""
        ...

    def __len__(self) -> int: ...

    def take(self, rows: ArrayLike) -> Self:
        """The images with these positions, in this order."""
        ...

    def inputs(self, rows: NDArray[np.int64], crop: Crop, draws: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        """What the network takes for these rows, (n, channels, height, width). A random crop needs its draws (n, n_draws)."""
        ...


class Prepared(np.ndarray[Any, Any]):
    """What a function of the caller's made of an image for the caller's own network; it is not prepared again."""


class Files:
    """Image files, or decoded images of any size; each is opened when it is needed."""

    starts_at: ClassVar[str] = "images"

    def __init__(self, images: Iterable[str | os.PathLike[str] | Image.Image | Prepared]) -> None:
        self.images = tuple(image if isinstance(image, Image.Image | Prepared) else Path(image) for image in images)
        self.names = [str(image) if isinstance(image, Path) else f"#{i}" for i, image in enumerate(self.images)]

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def hashes(self) -> NDArray[np.uint8]:
        paths = [image for image in self.images if isinstance(image, Path)]
        others = (image for image in self.images if not isinstance(image, Path))
        decoded = (np.asarray(upright_rgb(image) if isinstance(image, Image.Image) else image)[None] for image in others)
        of_files, of_pixels = iter(content_hashes(paths)), (content_hashes(pixels)[0] for pixels in decoded)
        rows = [next(of_files if isinstance(image, Path) else of_pixels) for image in self.images]
        return np.array(rows, dtype=np.uint8).reshape(len(self), KEY_BYTES)

    def take(self, rows: ArrayLike) -> Files:
        chosen = np.asarray(rows, dtype=np.int64)
        taken = Files(self.images[row] for row in chosen)
        if "hashes" in vars(self):
            taken.hashes = self.hashes[chosen]
        return taken

    def inputs(self, rows: NDArray[np.int64], crop: Crop, draws: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        return crop.apply(np.stack([np.asarray(self.pixels(int(row), crop.preprocessing)) for row in rows]), draws)

    def pixels(self, row: int, form: Preprocessing) -> NDArray[np.uint8]:
        """One image: (size, size, channels), or what was prepared."""
        image = self.images[row]
        if isinstance(image, Prepared):
            return image
        return form.pixels(open_image(image, at_least=form.at_least) if isinstance(image, Path) else upright_rgb(image))


class Arrays:
    """Images of one size, which are cropped as they are: image i is ``pixels[rows[i]]``, all of them unless given.

    `pixels` are uint8 (n, height, width) or (n, height, width, channels).
    """

    starts_at: ClassVar[str] = "images"

    def __init__(
        self, pixels: NDArray[np.uint8], names: Sequence[str] | None = None, rows: NDArray[np.int64] | None = None
    ) -> None:
        self.pixels = pixels
        self.rows = np.arange(len(pixels)) if rows is None else rows
        self.names = [f"#{i}" for i in range(len(self.rows))] if names is None else names

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def hashes(self) -> NDArray[np.uint8]:
        return content_hashes(self.pixels[self.rows])

    def take(self, rows: ArrayLike) -> Arrays:
        chosen = np.asarray(rows, dtype=np.int64)
        taken = Arrays(self.pixels, [self.names[row] for row in chosen], self.rows[chosen])
        if "hashes" in vars(self):
            taken.hashes = self.hashes[chosen]
        return taken

    def inputs(self, rows: NDArray[np.int64], crop: Crop, draws: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        return crop.apply(self.pixels, draws, rows=self.rows[rows])


def prepare(
    files: Files, *, size: int = 256, fit: Fit = "stretch", n_threads: int | None = None, progress: Progress | None = None
) -> Arrays:
    """The images as size × size pixels, from the cache; those that are not in it are decoded now.

    `n_threads` decode, one per core unless given. A file that cannot be decoded raises an ImageError that names it, a full
    disk or an unwritable folder a CacheError.
    """
    if len(files) == 0:
        raise ValueError("there are no images to prepare: check the dataset's folder and split")
    form = Preprocessing(size=size, crop=size, fit=fit)
    with mapped_array(
        files.hashes,
        f"images-{size}" if fit == "stretch" else f"images-{size}-{fit}",
        "prepared images",
        (size, size, 3),
        "uint8",
        detail=f"{size} × {size} pixels, {form.fitted}",
        progress=progress,
    ) as kept:
        for pixels in made_ahead([partial(files.pixels, row, form) for row in kept.missing], n_threads):
            kept.write(pixels[None])
    prepared = Arrays(kept.values, files.names, kept.rows)
    prepared.hashes = files.hashes
    return prepared


def as_source(images: Any) -> ImageSource:
    """Whatever a caller has, as a source: paths, folders (with all images below them), PIL images, arrays, lists of these."""
    if hasattr(images, "inputs"):
        source: ImageSource = images
        return source
    return Files(_each(images))


def _each(images: Any) -> Iterator[Path | Image.Image | Prepared]:
    """Every image in turn; folders and lists are opened, files are not."""
    if isinstance(images, str | os.PathLike):
        listed = list_images(images).not_empty()
        yield from (listed.root / image for image in listed.images)
    elif isinstance(images, Image.Image | Prepared):
        yield images
    elif isinstance(images, np.ndarray):
        yield from (_image(array) for array in (images if images.ndim == 4 else images[None]))
    elif isinstance(images, list | tuple):
        for image in images:
            yield from _each(image)
    else:
        raise ValueError(f"images are {_TAKES}; got {type(images).__name__}: pass one of these")


def _image(array: NDArray[Any]) -> Image.Image:
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.dtype != np.uint8 or not (array.ndim == 2 or array.shape[2:] == (3,)) or 0 in array.shape:
        raise ValueError(
            f"an image is a uint8 array of shape (height, width) or (height, width, 3), values 0 to 255; got {array.dtype} of "
            f"shape {array.shape}: convert it"
        )
    return Image.fromarray(array)
