"""What a photo looks like at a glance, made when it is decoded for its vector: size, sketch and thumbnail, kept by content."""

from __future__ import annotations

import io
import os
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from facetric.files import write_unsynced
from facetric.images.decoding import known_formats
from facetric.images.sketches import COLOR_SIDE, SIDE, Sketch, drawn
from facetric.photos.near import near_groups

THUMBNAIL_SIDE = 240  # pixels of the longer side
_QUALITY = 80
_OURS = re.compile(r"[0-9a-f]{32}\.jpg")
_HEAD = struct.Struct("<IIQ")
_N_GRAY, _N_COLORS = SIDE * SIDE, COLOR_SIDE * COLOR_SIDE * 2


@dataclass(frozen=True, eq=False)
class Look:
    """Of one content."""

    width: int
    height: int
    n_bytes: int  # of the file
    gray: NDArray[np.uint8]  # (32, 32)
    colors: NDArray[np.uint8]  # (4, 4, 2)
    thumbnail: bytes  # a JPEG

    def packed(self) -> bytes:
        """As a store keeps it."""
        head = _HEAD.pack(self.width, self.height, self.n_bytes)
        return head + self.gray.tobytes() + self.colors.tobytes() + self.thumbnail

    @classmethod
    def unpacked(cls, data: bytes) -> Look:
        """What `packed` gave."""
        values = np.frombuffer(data, dtype=np.uint8)
        start, stop = _HEAD.size + _N_GRAY, _HEAD.size + _N_GRAY + _N_COLORS
        gray = values[_HEAD.size : start].reshape(SIDE, SIDE)
        width, height, n_bytes = _HEAD.unpack_from(data)
        return cls(width, height, n_bytes, gray, values[start:stop].reshape(COLOR_SIDE, COLOR_SIDE, 2), data[stop:])

    @property
    def is_sharp(self) -> bool:
        """Whether the thumbnail is as large as one of the whole photo: a small network decodes less of a JPEG."""
        with Image.open(io.BytesIO(self.thumbnail), formats=("JPEG",)) as image:
            return max(image.size) >= min(THUMBNAIL_SIDE, max(self.width, self.height))

    def sketch(self, path: Path, content: bytes) -> Sketch:
        """What `facetric duplicates` compares."""
        return Sketch(path, content, self.width, self.height, self.n_bytes, self.gray, self.colors)


def look_of(image: Image.Image, data: bytes) -> Look:
    """Of a decoded, upright RGB image and the bytes of its file."""
    with Image.open(io.BytesIO(data), formats=known_formats()) as header:
        width, height = header.size
    return Look(width, height, len(data), *drawn(image), thumbnail_of(image))


def thumbnail_of(image: Image.Image) -> bytes:
    """A small JPEG."""
    small = image.copy()
    small.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE), Image.Resampling.BOX)
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=_QUALITY)
    return buffer.getvalue()


def write_thumbnails(looks: Mapping[bytes, bytes], folder: Path) -> None:
    """CONTENT.jpg for every packed look, where it is missing or damaged; those of other contents are removed."""
    folder.mkdir(exist_ok=True)
    wanted = {f"{content.hex()}.jpg": content for content in looks}
    there = set(os.listdir(folder))
    for name in there - wanted.keys():
        if _OURS.fullmatch(name):
            (folder / name).unlink(missing_ok=True)
    for name, content in wanted.items():
        data = Look.unpacked(looks[content]).thumbnail
        if name not in there or (folder / name).read_bytes() != data:
            write_unsynced(folder / name, data)


def near_copies(contents: Sequence[bytes], looks: Mapping[bytes, bytes]) -> NDArray[np.int64]:
    """For every content the first one that it is a copy of, resized, recompressed or slightly cropped; itself without a look."""
    grays = np.zeros((len(contents), SIDE, SIDE), dtype=np.uint8)
    colors = np.zeros((len(contents), COLOR_SIDE, COLOR_SIDE, 2), dtype=np.uint8)
    for row, content in enumerate(contents):
        if content in looks:
            look = Look.unpacked(looks[content])
            grays[row], colors[row] = look.gray, look.colors
    return near_groups(grays, colors)
