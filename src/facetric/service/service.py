"""`Service`: the parts that answer requests about one index, started and stopped together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from facetric.embedder.encoder import Encoder
from facetric.machine import available_cores
from facetric.photos import Collection, Decisions, PhotoGroups
from facetric.service.decisions_file import DecisionsFile
from facetric.service.engine import Answer, Embed, Engine
from facetric.service.limits import Limits
from facetric.service.live_groups import LiveGroups
from facetric.service.pictures import photo_bytes, picture_pixels, thumbnail
from facetric.text import printable

Result = TypeVar("Result")
_N_THUMBNAILS = 2000  # kept in memory, about 10 KB each


class Service:
    """An index, its model and its decisions.

    `group` makes groups that keep to decisions; it is called in a thread, with an index of its own. `embed` turns what
    `encoder.pixels` gave into vectors; without it, `encoder.vectors` does.
    """

    def __init__(
        self,
        index: Collection,
        encoder: Encoder,
        group: Callable[[Decisions], PhotoGroups],
        *,
        embed: Embed | None = None,
        decisions: str | os.PathLike[str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._index = index
        self.title = printable(Path(index.address).name)
        self.engine = Engine(index, encoder, embed or encoder.vectors)
        self.decisions = DecisionsFile(_decisions_path(index.address, decisions))
        self.groups = LiveGroups(group, lambda: (self.engine.catalog.version, self.decisions.decisions))
        self._decoders = ThreadPoolExecutor(available_cores(), thread_name_prefix="facetric-decode")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="facetric-decisions")
        self._thumbnail = lru_cache(_N_THUMBNAILS)(self._new_thumbnail)

    def start(self) -> None:
        """Open everything and be ready, if that was not done; an error where it is not possible."""
        if self.engine.is_alive:
            return
        self.decisions.open()
        try:
            self.engine.start()
        except BaseException:
            self.decisions.close()
            raise

    def stop(self) -> None:
        """Finish what was begun."""
        self._decoders.shutdown()
        self._writer.shutdown()
        self.engine.stop()
        self.decisions.close()

    async def answer(self, picture: bytes, *, top: int) -> Answer:
        """What there is about the bytes of a picture; an ImageError if they are none."""
        pixels = await self._decoding(picture_pixels, picture, self.engine.encoder, self.limits.n_pixels)
        return await asyncio.wrap_future(self.engine.ask(pixels, top=top))

    async def photo(self, content: str) -> bytes | None:
        """The file of a photo, None if it is not in the index or not on the disk as it was."""
        paths: Sequence[str] = self.engine.catalog.paths.get(content, ())
        return await self._decoding(photo_bytes, paths, content)

    async def thumbnail(self, content: str) -> bytes | None:
        """A small picture of a photo, None where there is no photo."""
        if content not in self.engine.catalog.paths:
            return None
        try:
            return await self._decoding(self._thumbnail, content)
        except LookupError:
            return None

    async def change_decisions(self, record: dict[str, Any]) -> Decisions:
        """See `DecisionsFile.change`. What was begun is finished, whether or not the client waits for it."""
        catalog = self.engine.catalog
        work = asyncio.get_running_loop().run_in_executor(self._writer, lambda: self.decisions.change(record, catalog.names))
        return await asyncio.shield(work)

    async def _decoding(self, work: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._decoders, work, *arguments)

    def _new_thumbnail(self, content: str) -> bytes:
        if (kept := self._index.thumbnail(bytes.fromhex(content))) is not None:
            return kept
        data = photo_bytes(self.engine.catalog.paths.get(content, ()), content)
        if data is None:
            raise LookupError(content)  # not kept: the file may come back
        return thumbnail(data)


def _decisions_path(address: str, given: str | os.PathLike[str] | None) -> Path:
    if given is not None:
        return Path(given).expanduser().absolute()
    if address.startswith("milvus:"):
        raise ValueError(f"{printable(address)} is not a folder: say where decisions are kept (--decisions decisions.json)")
    return Path(address).expanduser().absolute() / "decisions.json"
