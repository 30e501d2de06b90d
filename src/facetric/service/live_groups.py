"""The photos of the index in groups, made in a thread when somebody asks, and again when photos or decisions change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread

from facetric.photos import Decisions, PhotoGroups, live_page

State = tuple[int, Decisions]  # the version of the index, and what is decided


@dataclass(frozen=True, eq=False)
class _Made:
    state: State
    groups: PhotoGroups
    record: bytes


class LiveGroups:
    """`make` groups the photos as they are, keeping to decisions; `state` says what there is now."""

    def __init__(self, make: Callable[[Decisions], PhotoGroups], state: Callable[[], State]) -> None:
        self._make = make
        self._state = state
        self._made: _Made | None = None
        self._making: asyncio.Future[None] | None = None

    async def record(self) -> bytes:
        """The groups as JSON, with everything that is decided by now."""
        while self._made is None or self._made.state != self._state():
            await asyncio.shield(self._start())  # a request that gives up does not stop that
        return self._made.record

    async def page(self) -> bytes:
        """The page. Decisions since its groups were made are applied by its scripts, and new groups are made meanwhile."""
        state = self._state()
        if self._made is None or self._made.state[0] != state[0]:
            await asyncio.shield(self._start())
        elif self._made.state != state:
            self._start()
        assert self._made is not None
        return await asyncio.to_thread(live_page, self._made.groups, self._state()[1])

    def _start(self) -> asyncio.Future[None]:
        """When the groups that are being made, from now on if none were, are there."""
        if self._making is None or self._making.done():
            done: Future[None] = Future()
            self._making = asyncio.wrap_future(done)
            self._making.add_done_callback(asyncio.Future.exception)  # nobody may be waiting for it
            Thread(target=self._run, args=(done, self._state()), daemon=True).start()  # stopping does not wait for it
        return self._making

    def _run(self, done: Future[None], state: State) -> None:
        try:
            groups = self._make(state[1])
            self._made = _Made(state, groups, json.dumps(groups.record(), allow_nan=False).encode())
            done.set_result(None)
        except Exception as error:
            done.set_exception(error)
