"""`open_collection`: photos are added, updated, removed, searched and grouped, by one model."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from facetric.embedder import Embedder
from facetric.images.listing import PhotoList, Problem, list_photos, not_empty
from facetric.photos.contract import About, Entry, Hit, Store
from facetric.photos.ingest import Embedded, embed_list
from facetric.photos.looks import Look
from facetric.photos.places import (
    Status,
    absolute,
    command_line,
    existing,
    folder_label,
    is_below,
    listed_photos,
    place_of,
    remove_photos,
    status_of,
)
from facetric.photos.queries import Match, check_search, embedded_photos
from facetric.photos.store import VectorStore
from facetric.photos.vote import FOREIGN, Vote, Votes
from facetric.progress import Progress
from facetric.text import printable

if TYPE_CHECKING:
    from facetric.photos.decisions import Decisions
    from facetric.photos.photo_groups import PhotoGroups


@dataclass(frozen=True)
class Added:
    """What a change did to an index."""

    n_photos: int  # of those that were passed, in the index now
    n_new: int  # embedded now; the others were known
    n_removed: int = 0  # whose file is gone
    problems: tuple[Problem, ...] = ()


def open_collection(
    address: str | os.PathLike[str], encoder: Embedder, *, run: str | None = None, near_enough: float | None = None
) -> Collection:
    """The index in a folder, or at milvus://host:19530/collection; it is made with the first photo.

    `run` is the run folder of the encoder, None for the packaged network, and is recorded. `near_enough` is the similarity below
    which a photo is unknown unless `search` is told another. Without them, those of what `facetric.load` gave.
    """
    run = getattr(encoder, "run", None) if run is None else run
    near_enough = getattr(encoder, "near_enough", None) if near_enough is None else near_enough
    return Collection(address, encoder, run=run, near_enough=near_enough)


class Collection:
    """An index opened with a model. Any number of processes, and threads with this object, search it while one changes it."""

    def __init__(
        self, address: str | os.PathLike[str], encoder: Embedder, *, run: str | None = None, near_enough: float | None = None
    ) -> None:
        self.address = str(address)
        self.near_enough = near_enough
        self._encoder = encoder
        self._about = About(encoder.fingerprint, encoder.dim, run)
        self._place = place_of(address)
        self._reader: Store | None = None
        self._votes: Votes | None = None
        self._guard = RLock()  # of the reader, which any thread may use

    def add(
        self,
        photos: str | os.PathLike[str],
        *,
        label: str | None = None,
        labels_from_folders: bool = False,
        n_processes: int = 1,
        on_progress: Progress | None = None,
    ) -> Added:
        """Add all photos in a folder, or one; those that are there and unchanged are not read again.

        They get `label`, or the name of their folder directly below `photos`; without either they keep the label they have.
        Killed, it has kept every batch that was finished: add again to resume. `n_processes` embed, each with its own network.
        """
        return self._put(listed_photos(photos), label, labels_from_folders, n_processes, on_progress, remove_missing=False)

    def update(self, photos: str | os.PathLike[str], *, n_processes: int = 1, on_progress: Progress | None = None) -> Added:
        """Make the index agree with a folder: new and changed photos are embedded, those whose file is gone are removed.

        A photo that was moved keeps its vector, not its label.
        """
        self._existing()
        if not absolute(photos).exists():
            raise ValueError(
                f"{printable(absolute(photos))} is not there: if it was moved, "
                f"`{command_line('add', self.address, 'NEW_FOLDER')}` takes it over without embedding it "
                f"again; `{command_line('remove', self.address, photos)}` forgets it"
            )
        listed = listed_photos(photos)
        return self._put(listed, None, False, n_processes, on_progress, remove_missing=True)

    def remove(self, photos: str | os.PathLike[str]) -> int:
        """Forget a photo, or all below a folder, which need not exist any more; the number of photos. Files are not touched."""
        return remove_photos(self.address, photos)

    def re_embed(self, *, n_processes: int = 1, on_progress: Progress | None = None) -> Added:
        """Embed all photos of the index with this model, which then is the index's; until that is done, the old one is."""
        before = existing(self.address)
        self._place.lock()
        try:
            old = self._place.store(before, read_only=True)
            entries = old.entries()
            labels = {entry.path: entry.label for entry in entries if entry.label}
            old.close()
            if missing := [entry.path for entry in entries if not os.path.exists(entry.path)]:
                raise ValueError(
                    f"{len(missing):,} photos are not where they were, the first is {printable(missing[0])}: put them back, or "
                    f"forget them with `{command_line('remove', self.address, Path(missing[0]).parent)}`"
                )
            with self._place.store(self._about, read_only=False) as store:
                store.set_labels(labels)
                listed = PhotoList(Path("/"), tuple(Path(entry.path) for entry in entries))
                done = self._embed(listed, store, n_processes, on_progress)
            self._place.write(self._about)
        finally:
            self._place.unlock()
        self.close()
        return Added(len(done.photos), done.n_new, problems=done.problems)

    def status(self) -> Status:
        """Counts, labels and missing files."""
        return status_of(self.address)

    def entries(self) -> list[Entry]:
        """All photos, by path."""
        with self._guard:
            return self._store().entries()

    def search(
        self,
        photos: str | os.PathLike[str],
        *,
        top: int = 10,
        label: str | None = None,
        at_least: float | None = None,
        classify: bool = False,
        foreign: float = FOREIGN,
    ) -> list[Match]:
        """For a photo, or every photo in a folder, the `top` most similar ones in the index, exactly; equal ones by path.

        Files of a folder that cannot be opened are left out, and a warning names them.

        Only photos of `label`, and only similarities of `at_least` this; without it, of `near_enough`, which comes from the
        calibration of the model's run. `classify` has the neighbors vote for a label; `foreign` is the share of the photos that
        you expect to have none of the index's labels.
        """
        check_search(top, at_least, foreign)
        listed = not_empty(list_photos(photos))
        paths, vectors = embedded_photos(self._encoder, [listed.root / photo for photo in listed.photos])
        limit = self._limit(at_least)
        found = self.nearest(vectors, top=top, label=label)
        if label is not None and not any(found):
            self._refuse_label(label)
        hits = [tuple(hit for hit in some if hit.similarity >= limit) for some in found]
        votes = self.votes(hits, top=top, at_least=at_least, foreign=foreign) if classify else [None] * len(hits)
        return [Match(str(path), some, vote) for path, some, vote in zip(paths, hits, votes, strict=True)]

    def nearest(self, vectors: NDArray[np.float32], *, top: int, label: str | None = None) -> list[list[Hit]]:
        """For each vector (q, dimensions) the `top` most similar photos, also those that are not similar enough."""
        with self._guard:
            return self._store().search(vectors, top=top, label=label)

    def votes(
        self, hits: Sequence[Sequence[Hit]], *, top: int, at_least: float | None = None, foreign: float = FOREIGN
    ) -> Sequence[Vote | None]:
        """What the neighbors of each photo vote for; `top` and `at_least` are those of the search that found them."""
        with self._guard:
            self._votes = self._votes or Votes(self._store())
            return self._votes.of(hits, top=top, limit=self._limit(at_least), foreign=foreign)

    def cluster(
        self, *, n_clusters: int | None = None, finer: int = 0, coarser: int = 0, decisions: Decisions | None = None
    ) -> PhotoGroups:
        """All photos in groups: as many as the calibration of the embedder finds, or `n_clusters`; nothing is read again.

        `finer` and `coarser` move the calibration's threshold by steps. `decisions` are kept to.
        """
        from facetric.photos.index_groups import group_index

        if not isinstance(self._encoder, Embedder):
            raise ValueError(
                f"photos are clustered by what facetric.load gives; got {type(self._encoder).__name__}: open it with one"
            )
        clusterer, calibration, made_by = self._encoder.clusterer(n_clusters, coarser - finer)
        return group_index(self, clusterer, decisions=decisions, calibration=calibration, made_by=made_by)

    def thumbnail(self, content: bytes) -> bytes | None:
        """A small JPEG of a photo by its content; None where the store keeps none, or one of a coarser decoding only."""
        with self._guard:
            store = self._store()
            found = store.looks([content]) if isinstance(store, VectorStore) else {}
        look = Look.unpacked(found[content]) if content in found else None
        return look.thumbnail if look is not None and look.is_sharp else None

    def vectors(self, contents: Iterable[bytes]) -> NDArray[np.float32]:
        """The vectors of photos by their content, which must be in the index: (n, dimensions)"""
        with self._guard:
            return self._store().vectors(contents)

    def version(self) -> int:
        """Another number when the index has changed."""
        with self._guard:
            return self._store().version()

    def close(self) -> None:
        """Close the files that searching opened; they are opened again when needed."""
        with self._guard:
            if self._reader is not None:
                self._reader.close()
                self._reader = self._votes = None

    def _put(
        self,
        listed: PhotoList,
        label: str | None,
        from_folders: bool,
        n_processes: int,
        on_progress: Progress | None,
        *,
        remove_missing: bool,
    ) -> Added:
        if label is not None and from_folders:
            raise ValueError("photos get one label or those of their folders: pass --label or --labels-from-folders, not both")
        with self._writing() as store:
            if label is not None:
                store.set_labels({str(photo): label for photo in listed.photos})
            if from_folders:
                store.set_labels({str(photo): folder_label(listed.root, photo) for photo in listed.photos})
            done = self._embed(listed, store, n_processes, on_progress)
            gone: list[str] = []
            if remove_missing:
                kept = {str(photo) for photo in done.photos}
                gone = [e.path for e in store.entries() if is_below(e.path, listed.root) and e.path not in kept]
                store.remove(gone)
        return Added(len(done.photos), done.n_new, len(gone), done.problems)

    def _embed(self, listed: PhotoList, store: Store, n_processes: int, on_progress: Progress | None) -> Embedded:
        if n_processes > 1 and not isinstance(store, VectorStore):
            raise ValueError(
                f"several processes (--processes {n_processes}) write to an index in a folder only: on Milvus, run the command "
                "several times at once, each on a folder of its own"
            )
        return embed_list(listed, self._encoder, store, n_processes=n_processes, on_progress=on_progress)

    @contextmanager
    def _writing(self) -> Iterator[Store]:
        self._place.lock()
        try:
            about = self._place.about()
            self._check_model(about)
            with self._place.store(about or self._about, read_only=False) as store:
                if about is None:
                    self._place.write(self._about)
                yield store
        finally:
            self._place.unlock()

    def _store(self) -> Store:
        if self._reader is None:
            self._reader = self._place.store(self._existing(), read_only=True)
        return self._reader

    def _existing(self) -> About:
        about = existing(self.address)
        self._check_model(about)
        return about

    def _check_model(self, about: About | None) -> None:
        if about is not None and about.model != self._encoder.fingerprint:
            model = f"--model {shlex.quote(self._about.run)}" if self._about.run else ""
            raise ValueError(
                f"{printable(self.address)} holds vectors of another model ({about.model[:12]}; this one is "
                f"{self._about.model[:12]}): embed its photos again with `{self._place.embed_again(model)}`"
            )

    def _refuse_label(self, label: str) -> None:
        some = ", ".join(sorted({entry.label for entry in self.entries()} - {""})[:5]) or "no labels"
        raise ValueError(
            f"no photo has the label {label!r}; the index has {some}: see `facetric index status {shlex.quote(self.address)}`"
        )

    def _limit(self, at_least: float | None) -> float:
        if at_least is not None:
            return at_least
        return -np.inf if self.near_enough is None else self.near_enough
