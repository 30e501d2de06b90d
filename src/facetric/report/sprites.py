"""Thumbnails of images, packed into a few large WebP files at the largest size that a byte budget allows."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from facetric.machine import made_ahead
from facetric.progress import Progress

SHEET_SIDE = 2048  # pixels; every browser decodes this, on phones too
# Multiples of WebP's 16-pixel blocks, so that neighbors in a sheet do not bleed into each other.
SIDES = (192, 160, 128, 96, 80, 64, 48, 32)
QUALITY = 70  # of WebP
_N_TRIED = 144  # images encoded to estimate the size
_N_THREADS = 2


class Thumbnails:
    """Square RGB tiles by image id. An image that cannot be opened becomes a gray tile: a report never fails for it.

    `open_one(image_id, size)` opens an image, at least `size` pixels wide if it has as many. `side`: the largest tile that
    shows more than a smaller one; enlarging beyond it would only cost bytes.
    """

    def __init__(self, open_one: Callable[[int, int], Image.Image], *, side: int = SIDES[0]) -> None:
        self.side = side
        self.missing: set[int] = set()  # image ids that could not be opened so far
        self._open = open_one

    def tile(self, image_id: int, size: int) -> Image.Image:
        """The middle square of the image, size × size, in RGB."""
        try:
            image = self._open(image_id, size).convert("RGB")
        except (OSError, ValueError):
            self.missing.add(image_id)
            return Image.new("RGB", (size, size), (225, 225, 225))
        enlarged = min(image.size) < size
        return ImageOps.fit(image, (size, size), Image.Resampling.NEAREST if enlarged else Image.Resampling.BOX)

    def tiles(self, ids: Sequence[int], size: int, *, progress: Progress | None = None) -> Iterator[tuple[int, Image.Image]]:
        """(image id, tile) in the order asked for; decoded ahead in threads."""
        made = made_ahead((partial(self.tile, image_id, size) for image_id in ids), _N_THREADS)
        for done, (image_id, tile) in enumerate(zip(ids, made, strict=True), start=1):
            yield image_id, tile
            if progress is not None and (done % 64 == 0 or done == len(ids)):
                progress("Thumbnails", done, len(ids))


@dataclass(frozen=True, eq=False)
class SpriteSheets:
    """The sheets, and the cell of every image: cell c is in sheet c // per_sheet, filled row by row."""

    sheets: tuple[bytes, ...]  # WebP
    cells: NDArray[np.int32]  # (n,) -1 for images without a thumbnail
    side: int  # pixels of a cell
    n_missing: int  # images that were asked for and could not be opened

    @property
    def columns(self) -> int:
        return SHEET_SIDE // max(self.side, 1)

    @property
    def per_sheet(self) -> int:
        return self.columns**2


def pack(
    thumbnails: Thumbnails, ids: Sequence[int], *, n_images: int, budget: int, progress: Progress | None = None
) -> SpriteSheets:
    """Pack the thumbnails of these images, in this order, into at most `budget` bytes, at the largest side that fits.

    When not even the smallest fit, the last of them are dropped: put the important ones first. Images that cannot be
    opened get no cell.
    """
    cells = np.full(n_images, -1, dtype=np.int32)
    side, n_fitting = _choose(thumbnails, ids, budget)
    tiles = {image_id: np.asarray(tile) for image_id, tile in thumbnails.tiles(ids[:n_fitting], side, progress=progress)}
    kept = [image_id for image_id in tiles if image_id not in thumbnails.missing]
    n_missing = len(tiles) - len(kept)
    while (n_bytes := sum(map(len, sheets := _sheets([tiles[image_id] for image_id in kept], side)))) > budget:
        kept = kept[: int(0.97 * len(kept) * budget / n_bytes)]  # the estimate was too low
    cells[kept] = np.arange(len(kept))
    return SpriteSheets(sheets, cells, side, n_missing)


def _choose(thumbnails: Thumbnails, ids: Sequence[int], budget: int) -> tuple[int, int]:
    """The side, and how many of the images fit, estimated from a sample."""
    some = [ids[i] for i in np.unique(np.linspace(0, len(ids) - 1, _N_TRIED).astype(int))]
    sides = [side for side in SIDES if side <= thumbnails.side] or [SIDES[-1]]
    tried = [tile for _, tile in thumbnails.tiles(some, sides[0])]
    for side in sides:
        tiles = [np.asarray(tile.resize((side, side), Image.Resampling.BOX)) for tile in tried]
        n_fitting = int(0.95 * budget / sum(map(len, _sheets(tiles, side))) * len(tiles))
        if n_fitting >= len(ids):
            break
    return side, min(max(1, n_fitting), len(ids))


def _sheets(tiles: Sequence[NDArray[np.uint8]], side: int) -> tuple[bytes, ...]:
    columns = SHEET_SIDE // side
    return tuple(_webp(tiles[start : start + columns**2], side, columns) for start in range(0, len(tiles), columns**2))


def _webp(tiles: Sequence[NDArray[np.uint8]], side: int, columns: int) -> bytes:
    n_rows = -(-len(tiles) // columns)
    sheet = np.zeros((n_rows * side, min(columns, len(tiles)) * side, 3), dtype=np.uint8)
    for place, tile in enumerate(tiles):
        row, column = divmod(place, columns)
        sheet[row * side : (row + 1) * side, column * side : (column + 1) * side] = tile
    file = io.BytesIO()
    Image.fromarray(sheet).save(file, "WEBP", quality=QUALITY, method=3)
    return file.getvalue()
