"""Small pictures of the images of a dataset, from arrays in memory, from files, or from whatever the caller can open."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageOps

from facetric.progress import Progress

Picture = Image.Image | NDArray[np.uint8]  # (height, width) gray, or (height, width, 3) RGB
_MISSING = (225, 225, 225)


class Thumbnails:
    """Square RGB tiles by image id. A picture that cannot be opened becomes a crossed gray tile: a figure never fails for it.

    `pictures` is an array (n, height, width) or (n, height, width, 3) of uint8, a list of paths, or a function from an image id
    to a picture. Paths that are not absolute are looked up in `root`.
    """

    def __init__(
        self,
        pictures: NDArray[np.uint8] | Sequence[str | os.PathLike[str]] | Callable[[int], Picture],
        *,
        root: str | os.PathLike[str] | None = None,
    ) -> None:
        self.missing: set[int] = set()  # image ids that could not be opened so far
        self._folder = Path(root) if root is not None else Path()
        self._open: Callable[[int, int], Image.Image]
        if isinstance(pictures, np.ndarray):
            array = _checked(pictures)
            self._open = lambda image_id, size: Image.fromarray(array[image_id])
        elif callable(pictures):
            function = pictures
            self._open = lambda image_id, size: _as_image(function(image_id))
        else:
            paths = list(pictures)
            self._open = lambda image_id, size: _open_small(self._folder / paths[image_id], size)

    def tile(self, image_id: int, size: int) -> Image.Image:
        """The middle square of the picture, size × size, in RGB."""
        try:
            picture = self._open(int(image_id), size).convert("RGB")
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):  # whatever Pillow raises on damaged files
            self.missing.add(int(image_id))
            return _crossed_tile(size)
        enlarged = min(picture.size) < size
        return ImageOps.fit(picture, (size, size), Image.Resampling.NEAREST if enlarged else Image.Resampling.BOX)

    def tiles(
        self, image_ids: Iterable[int], size: int, *, n_threads: int = 2, on_progress: Progress | None = None
    ) -> Iterator[tuple[int, Image.Image]]:
        """(image id, tile) in the order asked for; files are decoded ahead by `n_threads` threads, some at a time."""
        ids = [int(image_id) for image_id in image_ids]
        n_ahead = 64 * n_threads
        with ThreadPoolExecutor(n_threads, thread_name_prefix="facetric-thumbnails") as pool:
            for start in range(0, len(ids), n_ahead):
                some = ids[start : start + n_ahead]
                yield from zip(some, pool.map(lambda image_id: self.tile(image_id, size), some), strict=True)
                if on_progress is not None:
                    on_progress(start + len(some), len(ids))


def _checked(pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
    if pictures.ndim == 4 and pictures.shape[3] == 1:
        pictures = pictures[..., 0]
    if pictures.dtype != np.uint8 or not (pictures.ndim == 3 or (pictures.ndim == 4 and pictures.shape[3] == 3)):
        raise ValueError(
            "pictures must be uint8 of shape (n, height, width) or (n, height, width, 3); "
            f"got {pictures.dtype} of shape {pictures.shape}: scale to 0…255 and put the channels last"
        )
    return pictures


def _as_image(picture: Picture) -> Image.Image:
    return picture if isinstance(picture, Image.Image) else Image.fromarray(picture)


def _open_small(path: Path, size: int) -> Image.Image:
    """The picture, upright; JPEG files are decoded at the smallest scale that is still at least twice the size."""
    with Image.open(path) as file:
        file.draft("RGB", (2 * size, 2 * size))
        turned = ImageOps.exif_transpose(file)
        turned.load()
        return turned


def _crossed_tile(size: int) -> Image.Image:
    tile = Image.new("RGB", (size, size), _MISSING)
    pen = ImageDraw.Draw(tile)
    inset = size // 4
    for ends in ((inset, inset, size - inset, size - inset), (inset, size - inset, size - inset, inset)):
        pen.line(ends, fill=(150, 150, 150), width=max(1, size // 24))
    return tile
