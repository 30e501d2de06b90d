"""The photos of the index in groups, made in a thread when somebody asks, and again when photos or decisions change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from typing import Any

import numpy as np

from facetric.photos import Decisions, PhotoGroups
from facetric.photos.groups_page import MOST_QUESTIONS, live_page

State = tuple[int, Decisions]  # the version of the index, and what is decided


@dataclass(frozen=True, eq=False)
class _Made:
    version: int
    decisions: Decisions
    groups: PhotoGroups
    record: bytes

    def is_for(self, state: State) -> bool:
        return self.version == state[0] and self.decisions is state[1]


class LiveGroups:
    """`make` groups the photos as they are, keeping to decisions; `state` says what there is now."""

    def __init__(self, make: Callable[[Decisions], PhotoGroups], state: Callable[[], State]) -> None:
        self._make = make
        self._state = state
        self._made: _Made | None = None
        self._making: asyncio.Future[_Made] | None = None

    async def record(self) -> bytes:
        """The groups as JSON, with everything that is decided by now."""
        while self._made is None or not self._made.is_for(self._state()):
            await self._remake()
        return self._made.record

    async def page(self) -> bytes:
        """The page. Decisions since its groups were made are applied by its scripts, and new groups are made meanwhile."""
        version, decisions = self._state()
        if self._made is None or self._made.version != version:
            await self._remake()
        elif not self._made.is_for((version, decisions)):
            self._start()
        assert self._made is not None
        return await asyncio.to_thread(live_page, self._made.groups, self._state()[1])

    async def _remake(self) -> None:
        """Wait for the groups that are being made; a request that gives up does not stop that."""
        await asyncio.shield(self._start())

    def _start(self) -> asyncio.Future[_Made]:
        if self._making is None:
            made: Future[_Made] = Future()
            self._making = asyncio.wrap_future(made)
            self._making.add_done_callback(self._finish)
            arguments = (made, *self._state())
            Thread(target=self._run, args=arguments, name="facetric-groups", daemon=True).start()  # stopping does not wait for it
        return self._making

    def _finish(self, done: asyncio.Future[_Made]) -> None:
        self._making = None
        if not done.cancelled() and done.exception() is None:
            self._made = done.result()

    def _run(self, made: Future[_Made], version: int, decisions: Decisions) -> None:
        try:
            groups = self._make(decisions)
            made.set_result(_Made(version, decisions, groups, json.dumps(_record(groups), allow_nan=False).encode()))
        except Exception as error:
            made.set_exception(error)


def _record(groups: PhotoGroups) -> dict[str, Any]:
    """Groups by the ids of their photos; the medoid comes first, then the most doubtful."""
    first = np.array(groups.first_of_each_content)
    is_medoid = np.isin(first, groups.medoids)
    first = first[np.lexsort((-groups.doubt[first], ~is_medoid, groups.clusters[first]))]
    members: dict[int, list[dict[str, Any]]] = {}
    for row in first.tolist():
        photo = {"id": groups.contents[row], "doubt": round(float(groups.doubt[row]), 4)}
        members.setdefault(int(groups.clusters[row]), []).append(photo)
    rejected = members.pop(-1, [])
    return {
        "n_photos": len(groups.photos),
        "n_groups": groups.n_groups,
        "n_alone": groups.n_alone,
        "made_by": groups.made_by,
        "expected": _expected(groups),
        "clusters": [{"name": groups.names.get(cluster), "photos": members[cluster]} for cluster in sorted(members)],
        "rejected": [photo["id"] for photo in rejected],
        "questions": [
            {"first": groups.contents[q.first], "second": groups.contents[q.second], "doubt": round(q.doubt, 4)}
            for q in groups.questions[:MOST_QUESTIONS]
        ],
    }


def _expected(groups: PhotoGroups) -> dict[str, Any] | None:
    if groups.promise is None:
        return None
    precision = groups.promise.precision
    return {"precision": precision.value, "precision_range": (precision.low, precision.high), "recall": groups.promise.recall}
