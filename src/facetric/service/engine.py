"""One thread that owns the network and the index: it embeds and searches for all requests that have gathered meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from facetric.embedder import Elsewhere, Embedder
from facetric.photos import Collection, Match, common_folder, matched
from facetric.text import readable

MOST_AT_ONCE = 32  # images
_LOOK_EVERY = 10.0  # seconds without requests after which a change of the index is looked for
_log = logging.getLogger("facetric")


@dataclass(frozen=True, eq=False)
class Catalog:
    """The photos of the index at one moment."""

    version: int
    root: Path  # the folder that holds all of them
    paths: Mapping[str, Sequence[str]]  # of each content, in hex
    n_photos: int

    @cached_property
    def names(self) -> Mapping[str, Sequence[str]]:
        """The same, below the folder."""
        return {content: [self.name(path) for path in own] for content, own in self.paths.items()}

    def name(self, path: str) -> str:
        """The path below the folder, as text."""
        found = Path(path)
        return readable(found.relative_to(self.root) if found.is_relative_to(self.root) else Path(found.name))


@dataclass(frozen=True)
class Answer:
    """What was found for one image."""

    vector: NDArray[np.float32]
    match: Match | None  # None where only the vector was wanted
    catalog: Catalog


@dataclass(frozen=True, eq=False)
class _Job:
    pixels: NDArray[np.uint8]
    top: int  # 0: only the vector is wanted
    at_least: float | None = None
    answer: Future[Answer] = field(default_factory=Future)


class Engine:
    """Answers about images. `start` opens the index and runs the network once; `catalog` is then there, and kept up to date."""

    def __init__(self, index: Collection, encoder: Embedder) -> None:
        self.encoder = encoder
        self.catalog = Catalog(-1, Path("/"), {}, 0)
        self._index = index
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="facetric-engine", daemon=True)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._look()
        if not isinstance(self.encoder, Elsewhere):
            self._answer([_Job(self.encoder.preprocessing.pixels(Image.new("RGB", (64, 64))), 1)])  # compile, allocate, measure
        self._thread.start()

    def stop(self) -> None:
        """Answer what was asked, then close the index."""
        self._jobs.put(None)
        self._thread.join()

    def ask(self, pixels: NDArray[np.uint8], *, top: int, at_least: float | None = None) -> Future[Answer]:
        """Embed an image and, unless `top` is 0, find that many neighbors, as `Collection.search` does. Cancelling it saves the
        work if it has not begun.
        """
        job = _Job(pixels, top, at_least)
        self._jobs.put(job)
        return job.answer

    def _run(self) -> None:
        jobs: list[_Job | None] = []
        while not jobs or jobs[-1] is not None:
            jobs = self._gathered()
            self._try([job for job in jobs if job is not None and job.answer.set_running_or_notify_cancel()])
        self._index.close()

    def _try(self, jobs: Sequence[_Job]) -> None:
        """Answer them together; should that fail, each by itself, so that one request cannot spoil another."""
        try:
            self._look()
            self._answer(jobs)
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    self._try([job])
                return
            _log.warning("a request failed: %s", error, exc_info=not isinstance(error, OSError))
            for job in jobs:
                job.answer.set_exception(error)

    def _gathered(self) -> list[_Job | None]:
        """All jobs that are waiting, at least one, or none after a while without any; the last one is None to stop."""
        try:
            found = [self._jobs.get(timeout=_LOOK_EVERY)]
        except Empty:
            return []
        with suppress(Empty):
            while found[-1] is not None and len(found) < MOST_AT_ONCE:
                found.append(self._jobs.get_nowait())
        return found

    def _look(self) -> None:
        version = self._index.version()
        if version == self.catalog.version:
            return
        paths: dict[str, list[str]] = {}
        entries = self._index.entries()
        for entry in entries:
            paths.setdefault(entry.content.hex(), []).append(entry.path)
        root = common_folder([entry.path for entry in entries]) if entries else Path("/")
        self.catalog = Catalog(version, root, paths, len(entries))

    def _answer(self, jobs: Sequence[_Job]) -> None:
        if not jobs:
            return
        vectors = self.encoder.encode([job.pixels for job in jobs])
        searching = [row for row, job in enumerate(jobs) if job.top]
        most = max((jobs[row].top for row in searching), default=0)
        matches = dict[int, Match]()
        if searching:
            found, votes = self._index.nearest(vectors[searching], top=most), self._index.votes(vectors[searching])
            for row, hits, vote in zip(searching, found, votes, strict=True):
                matches[row] = matched("", hits, vote, top=jobs[row].top, at_least=jobs[row].at_least)
        for row, (job, vector) in enumerate(zip(jobs, vectors, strict=True)):
            job.answer.set_result(Answer(vector, matches.get(row), self.catalog))
