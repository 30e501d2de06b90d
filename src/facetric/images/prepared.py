"""The prepared cache: every image decoded and resized once, into one memory-mapped file of bytes that all processes share.

A cache file belongs to one list of images at one size. Its key (`cache_key.py`) is a hash of the images' file-system metadata
(not of their content: that would mean reading them all), of the size and of the versions that determine the pixels.
`array_file.py` describes how the file is written, found again and checked.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from facetric.images.array_file import ArrayFile, PreparedCacheError, cache_folder
from facetric.images.cache_key import Description, described_files, images_key, preparation_versions
from facetric.images.decoding import open_image
from facetric.images.preprocessing import Crop, Preprocessing
from facetric.machine import available_cores

__all__ = ["PreparedCacheError", "PreparedImages", "cache_folder", "prepare"]


@dataclass(frozen=True, eq=False)
class PreparedImages:
    """Images of a cache file: image i is ``pixels[rows[i]]``, uint8 (size, size, 3), read from the disk when it is used."""

    file: ArrayFile
    pixels: NDArray[np.uint8]  # (n_file, size, size, 3), a read-only memory map
    rows: NDArray[np.int64]  # (n,)

    @property
    def path(self) -> Path:
        """The cache file."""
        return self.file.path

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, image_ids: ArrayLike) -> PreparedImages:
        """The images with these positions, in this order, from the same file."""
        return replace(self, rows=self.rows[np.asarray(image_ids)])

    @property
    def names(self) -> list[str]:
        return [f"{self.path.name}#{row}" for row in self.rows]

    def inputs(self, rows: NDArray[np.int64], crop: Crop, draws: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        """What the network takes for these images, as any `ImageSource` gives it."""
        return crop.apply(self.pixels, np.empty((len(rows), 0)) if draws is None else draws, rows=self.rows[rows])

    def __reduce__(self) -> tuple[Any, ...]:
        return _mapped, (self.file, self.rows)  # another process maps the file instead of copying it


def prepare(
    images: Sequence[Path],
    *,
    size: int = 256,
    name: str = "images",
    folder: Path | None = None,
    n_threads: int | None = None,
    verify: bool = False,
) -> PreparedImages:
    """The images stretched to size × size, from the cache, which is built now if it is missing, damaged or out of date.

    `name` is the dataset's, for the file's name and `facetric cache list`; `folder` is `cache_folder()` unless given; `n_threads`
    decode, one per core unless given. A file that cannot be decoded stops the build with an ImageError that names it; a full disk
    or an unwritable folder with a PreparedCacheError. Neither leaves anything behind. On a terminal a progress bar is shown.
    """
    if len(images) == 0:
        raise ValueError("there are no images to prepare: check the dataset's folder and split")
    n_threads = available_cores() if n_threads is None else n_threads
    if size < 1 or n_threads < 1:
        raise ValueError(f"size and n_threads must be at least 1; got {size} and {n_threads}: leave them out for usual values")
    folder = cache_folder() if folder is None else Path(folder)
    key = images_key(images, size)
    safe_name = re.sub(r"[^\w-]", "_", name)
    path = folder / f"{safe_name}-{size}-{key[:16]}.bytes"
    file = ArrayFile(path, key, shape=(len(images), size, size, 3), dtype="uint8", kind="prepared cache")
    file.ensure(lambda: _build(file, images, size, n_threads, name), verify=verify)
    return _mapped(file, np.arange(len(images)))


def _mapped(file: ArrayFile, rows: NDArray[np.int64]) -> PreparedImages:
    return PreparedImages(file, file.mapped(), rows)


def _build(file: ArrayFile, images: Sequence[Path], size: int, n_threads: int, name: str) -> None:
    source = described_files(images, size, file.key)
    description = Description("prepared images", name, f"{size} × {size} pixels", preparation_versions(), source)
    file.write(lambda first: _decoded(images, first, size, n_threads, file.path.name), description=asdict(description))


def _decoded(
    images: Sequence[Path], first: int, size: int, n_threads: int, title: str
) -> Generator[NDArray[np.uint8], None, None]:
    """The images in order from `first` on, decoded by threads (Pillow releases the GIL), a few ahead."""
    columns = (TextColumn("preparing {task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    ahead: deque[Future[NDArray[np.uint8]]] = deque()
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="facetric-prepare")
    try:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task(title, total=len(images), completed=first)
            for image in images[first:]:
                ahead.append(pool.submit(_decode, image, size))
                if len(ahead) > 8 * n_threads:
                    yield ahead.popleft().result()
                    progress.advance(task)
            while ahead:
                yield ahead.popleft().result()
                progress.advance(task)
    finally:
        pool.shutdown(cancel_futures=True)


def _decode(image: Path, size: int) -> NDArray[np.uint8]:
    return Preprocessing(size=size, crop=size).pixels(open_image(image, at_least=2 * size))[None]  # (1, size, size, 3)
