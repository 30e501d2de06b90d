"""Where the images of a batch come from: files, arrays in memory, or the cache of prepared images.

Threads are enough to prepare batches ahead of their use: Pillow and the crop kernel release the GIL, and nothing has to be copied
between processes.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from facetric.images.decoding import open_image, upright_rgb
from facetric.images.fingerprints import content_fingerprints
from facetric.images.listing import list_photos, not_empty
from facetric.images.prepared import PreparedImages
from facetric.images.preprocessing import Crop
from facetric.machine import available_cores

Result = TypeVar("Result")
_TAKES = "a path of a photo or a folder, a PIL image, a uint8 array (height, width) or (height, width, 3), or a list of these"


class ImageSource(Protocol):
    """Images that a network can be fed with, whatever they are kept as."""

    @property
    def names(self) -> Sequence[str]:
        """What the images are called in results: paths, or #0, #1, … in memory."""
        ...

    @property
    def hashes(self) -> NDArray[np.uint8]:
        """The content hash of every image, (n, 16): what caches know an image by."""
        ...

    @property
    def key(self) -> str:
        """A hash of all images in their order."""
        ...

    def __len__(self) -> int: ...

    def take(self, rows: ArrayLike) -> Self:
        """The images with these positions, in this order."""
        ...

    def inputs(self, rows: NDArray[np.int64], crop: Crop, draws: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        """What the network takes for these rows, (n, channels, height, width). A random crop needs its draws (n, n_draws)."""
        ...


class _Source:
    hashes: NDArray[np.uint8]

    @cached_property
    def key(self) -> str:
        return hashlib.sha256(self.hashes.tobytes()).hexdigest()


class Files(_Source):
    """Image files, or decoded images of any size; each is opened when it is needed."""

    def __init__(self, images: Iterable[str | os.PathLike[str] | Image.Image]) -> None:
        self.images = tuple(image if isinstance(image, Image.Image) else Path(image) for image in images)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def names(self) -> Sequence[str]:
        return [f"#{i}" if isinstance(image, Image.Image) else str(image) for i, image in enumerate(self.images)]

    @cached_property
    def hashes(self) -> NDArray[np.uint8]:  # type: ignore[override]
        paths = [image for image in self.images if isinstance(image, Path)]
        decoded = (np.asarray(upright_rgb(image))[None] for image in self.images if isinstance(image, Image.Image))
        of_files, of_pixels = iter(content_fingerprints(paths)), (content_fingerprints(pixels)[0] for pixels in decoded)
        rows = [next(of_files if isinstance(image, Path) else of_pixels) for image in self.images]
        return np.array(rows, dtype=np.uint8).reshape(len(self), -1)

    def take(self, rows: ArrayLike) -> Files:
        return Files(self.images[row] for row in np.asarray(rows, dtype=np.int64))

    def inputs(self, rows: NDArray[np.int64], crop: Crop, draws: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        form = crop.preprocessing
        pixels = np.empty((len(rows), form.size, form.size, form.channels), dtype=np.uint8)
        for i, row in enumerate(rows):
            image = self.images[row]
            pixels[i] = form.pixels(open_image(image, at_least=form.at_least) if isinstance(image, Path) else upright_rgb(image))
        return crop.apply(pixels, _draws(crop, draws, len(rows)))


class Arrays(_Source):
    """Images of one size in memory: uint8 (n, height, width) or (n, height, width, channels), which are cropped as they are."""

    def __init__(self, pixels: NDArray[np.uint8], names: Sequence[str] | None = None) -> None:
        self.pixels = pixels
        self._names = names

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def names(self) -> Sequence[str]:
        return [f"#{i}" for i in range(len(self))] if self._names is None else self._names

    @cached_property
    def hashes(self) -> NDArray[np.uint8]:  # type: ignore[override]
        return content_fingerprints(self.pixels)

    def take(self, rows: ArrayLike) -> Arrays:
        chosen = np.asarray(rows, dtype=np.int64)
        return Arrays(self.pixels[chosen], [self.names[row] for row in chosen])

    def inputs(self, rows: NDArray[np.int64], crop: Crop, draws: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        return crop.apply(self.pixels, _draws(crop, draws, len(rows)), rows=rows)


def as_source(images: Any) -> ImageSource:
    """Whatever a caller has, as a source: paths, folders (with all images below them), PIL images, arrays, lists of these."""
    if hasattr(images, "inputs"):
        source: ImageSource = images
        return source
    return Files(_each(images))


def source_of(images: ImageSource | Images) -> ImageSource:
    """The images of a dataset as a source: paths, an array (n, height, width) or (n, height, width, channels), or prepared."""
    if hasattr(images, "inputs"):
        source: ImageSource = images  # type: ignore[assignment]
        return source
    return Arrays(images) if isinstance(images, np.ndarray) else Files(images)  # type: ignore[arg-type]


def _each(images: Any) -> Iterator[Path | Image.Image]:
    """Every image in turn; folders and lists are opened, files are not."""
    if isinstance(images, str | os.PathLike):
        path = Path(images).expanduser()
        if not path.is_dir():
            yield path
            return
        listed = not_empty(list_photos(path))
        yield from (listed.root / image for image in listed.photos)
    elif isinstance(images, Image.Image):
        yield images
    elif isinstance(images, np.ndarray):
        yield from (_image(array) for array in (images if images.ndim == 4 else images[None]))
    elif isinstance(images, list | tuple):
        for image in images:
            yield from _each(image)
    else:
        raise ValueError(f"encode takes {_TAKES}; got {type(images).__name__}: pass one of these")


def _image(array: NDArray[Any]) -> Image.Image:
    is_gray, is_color = array.ndim == 2, array.ndim == 3 and array.shape[2] == 3
    if array.ndim == 3 and array.shape[2] == 1:
        array, is_gray = array[:, :, 0], True
    if array.dtype != np.uint8 or not (is_gray or is_color) or 0 in array.shape:
        raise ValueError(
            f"an image is a uint8 array of shape (height, width) or (height, width, 3), values 0 to 255; got {array.dtype} of "
            f"shape {array.shape}: convert it"
        )
    return Image.fromarray(array)


def made_ahead(tasks: Iterable[Callable[[], Result]], n_threads: int | None = None) -> Iterator[Result]:
    """The results of the tasks in order, each thread a task ahead; as many threads as cores unless given."""
    n_threads = available_cores() if n_threads is None else n_threads
    if n_threads < 1:
        raise ValueError(f"n_threads must be at least 1; got {n_threads}: leave it out for one per core")
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


def _draws(crop: Crop, draws: NDArray[np.float64] | None, n: int) -> NDArray[np.float64]:
    if draws is None:
        if crop.n_draws:
            raise ValueError(f"{type(crop).__name__} is random: pass draws, {crop.n_draws} per image, or use CenterCrop")
        return np.empty((n, 0))
    return draws


Images = NDArray[np.uint8] | PreparedImages | Sequence[Path]


def views(images: Images, rows: NDArray[np.int64], draws: NDArray[np.float64], crop: Crop) -> NDArray[np.float32]:
    """The images in these rows, cropped with their draws (len(rows), n_draws): float32 (len(rows), channels, crop, crop)."""
    if isinstance(images, np.ndarray | PreparedImages):
        return source_of(images).inputs(rows, crop, draws)
    return Files(images[row] for row in rows).inputs(np.arange(len(rows)), crop, draws)


def take_images(images: Images, image_ids: NDArray[np.int64]) -> Images:
    """The images with these positions, in this order, of the same kind."""
    if isinstance(images, PreparedImages):
        return images.take(image_ids)
    return images[image_ids] if isinstance(images, np.ndarray) else [images[i] for i in image_ids]
