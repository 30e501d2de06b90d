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
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from facetric.images.cache import MappedArray
from facetric.images.decoding import open_image, upright_rgb
from facetric.images.hashing import content_hashes
from facetric.images.listing import list_images
from facetric.images.preprocessing import Crop, Preprocessing
from facetric.machine import available_cores
from facetric.progress import Progress

Result = TypeVar("Result")
_TAKES = "a path of a photo or a folder, a PIL image, a uint8 array (height, width) or (height, width, 3), or a list of these"


class ImageSource(Protocol):
    """Images that a network can be fed with, whatever they are kept as: Files, Arrays, Prepared, or embedder.Activations."""

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


class _Source:
    hashes: NDArray[np.uint8]
    starts_at: ClassVar[str] = "images"

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
        of_files, of_pixels = iter(content_hashes(paths)), (content_hashes(pixels)[0] for pixels in decoded)
        rows = [next(of_files if isinstance(image, Path) else of_pixels) for image in self.images]
        return np.array(rows, dtype=np.uint8).reshape(len(self), -1)

    def take(self, rows: ArrayLike) -> Files:
        return Files(self.images[row] for row in np.asarray(rows, dtype=np.int64))

    def inputs(self, rows: NDArray[np.int64], crop: Crop, draws: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        form = crop.preprocessing
        pixels = np.empty((len(rows), form.size, form.size, form.channels), dtype=np.uint8)
        for i, row in enumerate(rows):
            pixels[i] = self.pixels(int(row), form)
        return crop.apply(pixels, _draws(crop, draws, len(rows)))

    def pixels(self, row: int, form: Preprocessing) -> NDArray[np.uint8]:
        """One image, stretched: (size, size, channels)"""
        image = self.images[row]
        return form.pixels(open_image(image, at_least=form.at_least) if isinstance(image, Path) else upright_rgb(image))


class Arrays(_Source):
    """Images of one size, which are cropped as they are: image i is ``pixels[rows[i]]``, all of them unless given.

    `pixels` are uint8 (n, height, width) or (n, height, width, channels).
    """

    def __init__(
        self, pixels: NDArray[np.uint8], names: Sequence[str] | None = None, rows: NDArray[np.int64] | None = None
    ) -> None:
        self.pixels = pixels
        self.rows = np.arange(len(pixels)) if rows is None else rows
        self.names = [f"#{i}" for i in range(len(self.rows))] if names is None else names

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def hashes(self) -> NDArray[np.uint8]:  # type: ignore[override]
        return content_hashes(self.pixels[self.rows])

    def take(self, rows: ArrayLike) -> Arrays:
        chosen = np.asarray(rows, dtype=np.int64)
        return Arrays(self.pixels, [self.names[row] for row in chosen], self.rows[chosen])

    def inputs(self, rows: NDArray[np.int64], crop: Crop, draws: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        return crop.apply(self.pixels, _draws(crop, draws, len(rows)), rows=self.rows[rows])


class Prepared(Arrays):
    """Files that `prepare` has stretched and kept; pixels are read from the disk when they are used."""

    def __init__(self, array: MappedArray, names: Sequence[str], hashes: NDArray[np.uint8]) -> None:
        super().__init__(array.mapped(), names, array.find(hashes))
        self.array, self.hashes = array, hashes

    def take(self, rows: ArrayLike) -> Prepared:
        chosen = np.asarray(rows, dtype=np.int64)
        return Prepared(self.array, [self.names[row] for row in chosen], self.hashes[chosen])

    def __reduce__(self) -> tuple[Any, ...]:
        return Prepared, (self.array, self.names, self.hashes)  # another process maps the file instead of copying it


def prepare(
    images: Iterable[str | os.PathLike[str]],
    *,
    size: int = 256,
    folder: Path | None = None,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> Prepared:
    """The images stretched to size × size, from the cache; those that are not in it are decoded now.

    `folder` is `cache_folder()` unless given; `n_threads` decode, one per core unless given. A file that cannot be decoded
    raises an ImageError that names it, a full disk or an unwritable folder a CacheError.
    """
    files, form = Files(images), Preprocessing(size=size, crop=size)
    if len(files) == 0:
        raise ValueError("there are no images to prepare: check the dataset's folder and split")
    array = MappedArray(
        f"images-{size}", "prepared images", (size, size, 3), "uint8", f"{size} × {size} pixels", {}, ("pillow",), folder
    )

    with array.adding(files.hashes, progress=progress) as (missing, add):
        for pixels in made_ahead([partial(files.pixels, row, form) for row in missing], n_threads):
            add(pixels[None])
    return Prepared(array, files.names, files.hashes)


def as_source(images: Any) -> ImageSource:
    """Whatever a caller has, as a source: paths, folders (with all images below them), PIL images, arrays, lists of these."""
    if hasattr(images, "inputs"):
        source: ImageSource = images
        return source
    return Files(_each(images))


def source_of(images: ImageSource | Sequence[Path] | NDArray[np.uint8]) -> ImageSource:
    """The images of a dataset as a source: paths, or an array (n, height, width) or (n, height, width, channels)."""
    if isinstance(images, np.ndarray):
        return Arrays(images)
    return cast(ImageSource, images) if hasattr(images, "inputs") else Files(images)


def _each(images: Any) -> Iterator[Path | Image.Image]:
    """Every image in turn; folders and lists are opened, files are not."""
    if isinstance(images, str | os.PathLike):
        path = Path(images).expanduser()
        if not path.is_dir():
            yield path
            return
        listed = list_images(path).not_empty()
        yield from (listed.root / image for image in listed.images)
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
