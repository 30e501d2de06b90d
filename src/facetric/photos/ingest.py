"""Embed the photos of a folder into a store: resumable, in one process or several, broken files listed and left out."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from facetric.embedder import Embedder
from facetric.images import content_hash
from facetric.images.decoding import ImageError, decode_image, open_file
from facetric.images.listing import PhotoList, Problem
from facetric.images.sources import made_ahead
from facetric.photos.looks import look_of
from facetric.photos.store import EmbeddedPhoto, PhotoStore, VectorStore, file_state, unchanged
from facetric.progress import Progress
from facetric.text import printable

BATCH = 32  # photos decoded at a time


@dataclass(frozen=True)
class Embedded:
    """The photos of a list that have vectors in the store now."""

    photos: tuple[Path, ...]  # relative to the root of the list, in its order
    contents: tuple[bytes, ...]  # of each photo: the key of its vector
    problems: tuple[Problem, ...]
    n_new: int  # photos that were embedded now


@dataclass(frozen=True)
class _Picture:
    """A photo that was read: its pixels, unless they are not needed, or what is wrong with it."""

    path: Path
    state: str = ""
    content: bytes = b""
    pixels: NDArray[np.uint8] | None = None
    look: bytes = b""
    problem: str = ""


def embed_list(
    listed: PhotoList, encoder: Embedder, store: PhotoStore, *, n_processes: int = 1, on_progress: Progress | None = None
) -> Embedded:
    """Give every photo of the list a vector in the store, where it has none; each batch is kept when it is done."""
    if n_processes < 1:
        raise ValueError(f"processes must be at least 1; got {n_processes}: 1 is typical, or the number of cores (--processes)")
    contents = unchanged(listed.root, listed.photos, store.states(listed.photos))
    waiting = [photo for photo in listed.photos if photo not in contents]
    batches = [waiting[start : start + BATCH] for start in range(0, len(waiting), BATCH)]
    problems, n_new = list(listed.problems), 0
    n_processes = min(n_processes, len(batches))
    results = _together(listed.root, batches, encoder, store, n_processes) if n_processes > 1 else None
    for done in results or _alone(listed.root, batches, encoder, store):
        photos = [photo for photo in done if isinstance(photo, EmbeddedPhoto)]
        store.add(photos)
        contents.update((photo.path, photo.content) for photo in photos)
        problems += [photo for photo in done if isinstance(photo, Problem)]
        n_new += sum(photo.vector is not None for photo in photos)
        if on_progress is not None:
            on_progress(len(contents) + len(problems) - len(listed.problems), len(listed.photos))
    kept = tuple(photo for photo in listed.photos if photo in contents)
    ordered = tuple(sorted(problems, key=lambda problem: os.fsencode(problem.path)))
    return Embedded(kept, tuple(contents[photo] for photo in kept), ordered, n_new)


Done = list[EmbeddedPhoto | Problem]


def _alone(root: Path, batches: Sequence[Sequence[Path]], encoder: Embedder, store: PhotoStore) -> Iterator[Done]:
    """In this process: threads read and decode ahead of the network."""
    contents = store.contents()
    read = (partial(_read_all, root, batch, encoder, contents, looks=store.keeps_looks) for batch in batches)
    for pictures in made_ahead(read, n_threads=2):
        yield _embedded(pictures, encoder, store)


def _read_all(root: Path, photos: Sequence[Path], encoder: Embedder, known: Set[bytes], *, looks: bool) -> list[_Picture]:
    return [_read(root, photo, encoder, known, looks=looks) for photo in photos]


def _read(root: Path, photo: Path, encoder: Embedder, known: Set[bytes], *, looks: bool) -> _Picture:
    """The file is read and decoded once: hash, pixels, thumbnail and sketch are of the same bytes. A known content is not."""
    path = root / photo
    state = file_state(path)  # before reading: a file that changes meanwhile is read again next time
    try:
        with open_file(path) as file:
            data = file.read()
        content = content_hash(data)
        if content in known:
            return _Picture(photo, state, content)
        image, _ = decode_image(io.BytesIO(data), path, at_least=encoder.preprocessing.at_least)
        return _Picture(
            photo, state, content, encoder.preprocessing.pixels(image), look_of(image, data).packed() if looks else b""
        )
    except ImageError as error:
        return _Picture(photo, problem=str(error))
    except OSError as error:  # a read error of the disk
        return _Picture(photo, problem=f"{printable(path)} cannot be read ({error.strerror}): check the disk")


def _embedded(pictures: Sequence[_Picture], encoder: Embedder, store: PhotoStore) -> Done:
    """Vectors for the contents that have none yet, each once."""
    known = store.known({picture.content for picture in pictures if picture.pixels is not None})
    new = {p.content: p.pixels for p in pictures if p.pixels is not None and p.content not in known}
    vectors = dict(zip(new, encoder.encode(list(new.values())), strict=True))
    looks = {picture.content: picture.look for picture in pictures}
    return [
        Problem(picture.path, picture.problem)
        if picture.problem
        else EmbeddedPhoto(
            picture.path, picture.state, picture.content, vectors.pop(picture.content, None), looks.pop(picture.content, b"")
        )
        for picture in pictures
    ]


# Several processes: each has a model of its own and reads the store; this one writes.

_worker: tuple[Path, Embedder, VectorStore, Set[bytes], bool] | None = None


def _together(
    root: Path, batches: Sequence[Sequence[Path]], encoder: Embedder, store: PhotoStore, n_processes: int
) -> Iterator[Done]:
    """Batches as they are finished, with a few waiting for every process."""
    assert isinstance(store, VectorStore)  # the others open its file
    n_threads = max(1, torch.get_num_threads() // n_processes)
    pool = ProcessPoolExecutor(
        n_processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(root, encoder, store.path, n_threads, store.keeps_looks),
    )
    left, running = iter(batches), set[Future[Done]]()
    try:
        while True:
            while len(running) < 3 * n_processes and (batch := next(left, None)) is not None:
                running.add(pool.submit(_work, batch))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    except BrokenProcessPool:
        raise RuntimeError(
            "a process of --processes ended unexpectedly, perhaps for lack of memory: run the command again, with fewer processes"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(root: Path, encoder: Embedder, store: Path, n_threads: int, looks: bool) -> None:
    global _worker  # noqa: PLW0603
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process, which stops the others
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(n_threads)
    opened = VectorStore(store, fingerprint=encoder.fingerprint, dimensions=encoder.dim, read_only=True)
    _worker = (root, encoder, opened, opened.contents(), looks)


def _end_with_parent() -> None:
    """A killed parent cannot stop its processes: they notice."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(batch: Sequence[Path]) -> Done:
    assert _worker is not None
    root, encoder, store, known, looks = _worker
    return _embedded(_read_all(root, batch, encoder, known, looks=looks), encoder, store)
