"""`Service`: the parts that answer requests about one index, started and stopped together; and what requests may cost."""

from __future__ import annotations

import asyncio
import io
import os
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from facetric.embedder import Elsewhere, Embedder
from facetric.images import MAX_PIXELS, ImageError, content_hash, decode_image, open_file
from facetric.machine import available_cores
from facetric.photos import Decisions, PhotoGroups, open_collection, thumbnail_of
from facetric.service.engine import Answer, Engine
from facetric.service.live_groups import LiveGroups
from facetric.text import printable

Result = TypeVar("Result")
_N_THUMBNAILS = 2000  # kept in memory, about 10 KB each
_UPLOAD = Path("the image")  # what error messages call it
_MEDIA_TYPES = {  # how files begin
    re.compile(rb"\xff\xd8\xff"): "image/jpeg",
    re.compile(rb"\x89PNG"): "image/png",
    re.compile(rb"GIF8"): "image/gif",
    re.compile(rb"RIFF....WEBP", re.DOTALL): "image/webp",
    re.compile(rb"BM"): "image/bmp",
    re.compile(rb"....ftypavi[fs]", re.DOTALL): "image/avif",
    re.compile(rb"....ftyp(hei|mif|msf)", re.DOTALL): "image/heic",
    re.compile(rb"II\*\0|MM\0\*"): "image/tiff",
}
_TAKEN = {*_MEDIA_TYPES.values()} - {"image/tiff"}  # a TIFF of 8 × 8 pixels may hold a tile of 16,000 × 16,000


@dataclass(frozen=True)
class Limits:
    """Beyond them a request is refused: 413, 422, 503 and 429, in this order."""

    megabytes: float = 20.0  # of a request
    megapixels: float = 50.0  # of an image, as its header says, before it is decoded
    seconds: float = 30.0  # from the first byte of a request to the last byte of its answer
    requests: int = 64  # under way at a time

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise ValueError(f"a limit is above 0; got {value} {field.name}: raise it ({field.name}=)")
        if self.megapixels * 1e6 > MAX_PIXELS:
            most = MAX_PIXELS / 1e6
            raise ValueError(f"images above {most:g} megapixels are never decoded; got {self.megapixels}: lower megapixels=")

    @property
    def n_bytes(self) -> int:
        return int(self.megabytes * 1e6)


class Service:
    """An index, its model and its decisions. `grouping` are arguments of `Collection.cluster`."""

    def __init__(
        self, index: str | os.PathLike[str], encoder: Embedder, *, limits: Limits | None = None, **grouping: Any
    ) -> None:
        self.limits = limits or Limits()
        self.title = printable(Path(index).name)
        self._address, self._grouping = index, grouping
        self._index = open_collection(index, encoder)
        self.engine = Engine(self._index, encoder)
        self._decided = open_collection(index)  # of its own, which does not wait for searches
        self.groups = LiveGroups(self._group, lambda: (self.engine.catalog.version, self.decisions()))
        self._decoders = ThreadPoolExecutor(available_cores(), thread_name_prefix="facetric-decode")
        self._thumbnail = lru_cache(_N_THUMBNAILS)(self._new_thumbnail)

    def start(self) -> None:
        """Open everything and be ready, if that was not done; an error where it is not possible."""
        if self.engine.is_alive:
            return
        self.decisions()
        self.engine.start()

    def stop(self) -> None:
        """Finish what was begun."""
        self._decoders.shutdown()
        self.engine.stop()
        self._decided.close()

    def decisions(self) -> Decisions:
        """Everything that is decided by now."""
        return self._decided.decisions()

    async def answer(self, image: bytes, *, top: int, at_least: float | None = None) -> Answer:
        """What there is about the bytes of an image; an ImageError if they are none."""
        pixels = await self._decoding(image_pixels, image, self.engine.encoder, int(self.limits.megapixels * 1e6))
        return await asyncio.wrap_future(self.engine.ask(pixels, top=top, at_least=at_least))

    async def photo(self, content: str) -> bytes | None:
        """The file of a photo, None if it is not in the index or not on the disk as it was."""
        return await self._decoding(photo_bytes, self.engine.catalog.paths.get(content, ()), content)

    async def thumbnail(self, content: str) -> bytes | None:
        """A small JPEG of a photo, None where there is no photo."""
        if content not in self.engine.catalog.paths:
            return None
        try:
            return await self._decoding(self._thumbnail, content)
        except LookupError:
            return None

    async def change_decisions(self, record: dict[str, Any]) -> Decisions:
        """See `Decisions.changed`. What was begun is finished, whether or not the client waits for it."""
        return await asyncio.shield(asyncio.to_thread(self._decided.decide, record, self.engine.catalog.names))

    def _group(self, decisions: Decisions) -> PhotoGroups:
        """In a thread, with an index of its own."""
        with closing(open_collection(self._address, self.engine.encoder)) as opened:
            return opened.cluster(decisions=decisions, **self._grouping)

    async def _decoding(self, work: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._decoders, work, *arguments)

    def _new_thumbnail(self, content: str) -> bytes:
        if (kept := self._index.thumbnail(bytes.fromhex(content))) is not None:
            return kept
        data = photo_bytes(self.engine.catalog.paths.get(content, ()), content)
        if data is None:
            raise LookupError(content)  # not kept: the file may come back
        return thumbnail_of(data)


def image_pixels(data: bytes, encoder: Embedder, max_pixels: int) -> NDArray[np.uint8]:
    """The encoder's input; an ImageError for bytes that are no image, or one of too many pixels."""
    if isinstance(encoder, Elsewhere):
        raise ImageError("the vectors of this index were made elsewhere, and no image can be searched for: look at its groups")
    if not data:
        raise ImageError("the request has no body: send the bytes of an image")
    if media_type(data) not in _TAKEN:
        raise ImageError("the image is not JPEG, PNG, WebP, GIF, BMP, AVIF or HEIC: save it as one of these")
    image, _ = decode_image(io.BytesIO(data), _UPLOAD, at_least=encoder.preprocessing.at_least, max_pixels=max_pixels)
    return encoder.preprocessing.pixels(image)


def photo_bytes(paths: Iterable[str], content: str) -> bytes | None:
    """The bytes of the first of these files that still has this content: whatever else lies there now is not given away."""
    for path in paths:
        try:
            with open_file(Path(path)) as file:
                data = file.read()
        except (ImageError, OSError):
            continue
        if content_hash(data).hex() == content:
            return data
    return None


def media_type(data: bytes) -> str:
    """What a file is, by its first bytes; no answer of the service is ever guessed at by a browser.

    >>> media_type(b"GIF89a"), media_type(b"<html>")
    ('image/gif', 'application/octet-stream')
    """
    return next((kind for start, kind in _MEDIA_TYPES.items() if start.match(data[:32])), "application/octet-stream")
