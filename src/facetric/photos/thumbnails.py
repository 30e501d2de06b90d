"""Small pictures of photos, each made once for a content; and which photos are copies of each other, as seen on these."""

from __future__ import annotations

import io
import os
import re
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from facetric.files import write_unsynced
from facetric.images.decoding import ImageError, open_image
from facetric.images.sketches import COLOR_SIDE, drawn
from facetric.images.sketches import SIDE as SKETCH_SIDE
from facetric.machine import available_cores
from facetric.photos.near import near_groups
from facetric.progress import Progress

SIDE = 240  # pixels of the longer side
_QUALITY = 80
_OURS = re.compile(r"[0-9a-f]{32}\.jpg")

Drawing = tuple[NDArray[np.uint8], NDArray[np.uint8]]


def thumbnail_name(content: str) -> str:
    """The file of a content in the folder."""
    return f"{content}.jpg"


def make_thumbnails(
    photos: Sequence[Path], contents: Sequence[str], folder: Path, *, on_progress: Progress | None = None
) -> NDArray[np.int64]:
    """A thumbnail for every photo, where there is none yet; those of other contents are removed.

    Gives for every photo the first one that it is a copy of, resized, recompressed or slightly cropped: itself if there is none.
    """
    folder.mkdir(exist_ok=True)
    wanted = {thumbnail_name(content) for content in contents}
    for name in os.listdir(folder):
        if _OURS.fullmatch(name) and name not in wanted:
            (folder / name).unlink(missing_ok=True)
    grays = np.zeros((len(photos), SKETCH_SIDE, SKETCH_SIDE), dtype=np.uint8)  # a photo that is gone is a copy of nothing
    colors = np.zeros((len(photos), COLOR_SIDE, COLOR_SIDE, 2), dtype=np.uint8)
    rows: dict[str, list[int]] = {}  # exact copies share a thumbnail: two threads must not write it at once
    for i, content in enumerate(contents):
        rows.setdefault(content, []).append(i)
    first, files = [photos[own[0]] for own in rows.values()], [folder / thumbnail_name(content) for content in rows]
    pool = ThreadPoolExecutor(available_cores(), thread_name_prefix="facetric-thumbnails")
    try:
        for done, (own, found) in enumerate(zip(rows.values(), pool.map(_drawing, first, files), strict=True), start=1):
            if found is not None:
                grays[own], colors[own] = found
            if on_progress is not None:
                on_progress(done, len(rows))
    finally:
        pool.shutdown(cancel_futures=True)
    return near_groups(grays, colors)


def _drawing(photo: Path, file: Path) -> Drawing | None:
    if (kept := _kept(file)) is not None:
        with Image.open(io.BytesIO(kept), formats=("JPEG",)) as picture:
            return drawn(picture.convert("RGB"))
    try:
        image = open_image(photo, at_least=2 * SIDE)
    except (ImageError, OSError):  # it could be opened when it was embedded, and cannot now
        return None
    image.thumbnail((SIDE, SIDE), Image.Resampling.BOX)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=_QUALITY)
    data = buffer.getvalue()
    write_unsynced(file, data + _checksum(data))
    return drawn(image)


def _kept(file: Path) -> bytes | None:
    """A thumbnail as it was written; None if it is missing or damaged."""
    try:
        data = file.read_bytes()
    except OSError:
        return None
    picture, checksum = data[:-4], data[-4:]
    return picture if checksum == _checksum(picture) else None


def _checksum(picture: bytes) -> bytes:
    """Kept behind the end of the picture, where no viewer looks."""
    return zlib.crc32(picture).to_bytes(4, "big")
