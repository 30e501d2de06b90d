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
        self._making: asyncio.Future[_Made] | None = None

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

    def _start(self) -> asyncio.Future[_Made]:
        """The groups that are being made, from now on if none were."""
        if self._making is None:
            made: Future[_Made] = Future()
            self._making = asyncio.wrap_future(made)
            self._making.add_done_callback(self._finish)
            Thread(target=self._run, args=(made, self._state()), daemon=True).start()  # stopping does not wait for it
        return self._making

    def _finish(self, done: asyncio.Future[_Made]) -> None:
        self._making = None
        if not done.cancelled() and done.exception() is None:
            self._made = done.result()

    def _run(self, made: Future[_Made], state: State) -> None:
        try:
            groups = self._make(state[1])
            made.set_result(_Made(state, groups, json.dumps(groups.record(), allow_nan=False).encode()))
        except Exception as error:
            made.set_exception(error)
