"""`Collection`: photos are added, updated, removed, searched, grouped and decided about, with the vectors of one model."""

from __future__ import annotations

import logging
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facetric.embedder import Elsewhere, Embedder, ImageLike, Vectors, given_vectors
from facetric.images import ImageList
from facetric.photos.decisions import Decisions, joined
from facetric.photos.given import ingest_vectors, model_of
from facetric.photos.grouping import clusterer_of
from facetric.photos.groups import PhotoGroups, group_photos
from facetric.photos.ingest import Store, absolute, common_folder, ingest, is_sharp, listed_photos
from facetric.photos.labels import UNKNOWN_FRACTION, Vote, Votes
from facetric.photos.milvus_store import MilvusStore, parsed_address
from facetric.photos.query import Match, Queries, check_search, embedded, matched, query_vectors
from facetric.photos.sqlite_store import SqliteStore
from facetric.photos.store import Added, Entry, Hit, Model, Status
from facetric.progress import Progress
from facetric.text import counted, printable

_log = logging.getLogger("facetric")


class Collection:
    """Photos with vectors, thumbnails, labels and decisions, in a folder or at milvus://host:19530/collection; it is made with
    the first photo. Without an embedder, nothing can be added or searched for.

    Any number of processes, and threads with this object, search it while one changes it.
    """

    def __init__(self, address: str | os.PathLike[str], embedder: Embedder | None = None) -> None:
        if not isinstance(address, str | os.PathLike):
            raise ValueError(f"a collection is a folder, or milvus://…; got {type(address).__name__}: pass its path")
        self.address = str(address)
        self._embedder = embedder
        self._type: type[Store] = SqliteStore
        if self.address.startswith("milvus:"):
            parsed_address(self.address)
            self._type = MilvusStore
        # Below it are the names of vectors without photos, which are no files.
        self.place = absolute(self.address) if self._type is SqliteStore else Path("/", self.address)
        self._reader: Store | None = None
        self._votes: Votes | None = None
        self._guard = RLock()  # of the reader, which any thread may use

    @property
    def model(self) -> Model | None:
        """The model whose vectors are searched; None while there is no collection."""
        return self._type.recorded(self.address)

    def add(
        self,
        photos: str | os.PathLike[str],
        *,
        label: str | None = None,
        labels_from_folders: bool = False,
        progress: Progress | None = None,
    ) -> Added:
        """Add all photos in a folder, or one; those that are there and unchanged are not read again.

        They get `label`, or the name of their folder directly below `photos`; without either they keep the label they have.
        Killed, it has kept every batch that was finished: add again to resume.
        """
        if label is not None and labels_from_folders:
            raise ValueError("photos get one label or those of their folders: pass label= or labels_from_folders=True, not both")
        listed = listed_photos(photos)
        with self.writing() as store:
            if label is not None or labels_from_folders:
                folders = {photo: photo.relative_to(listed.root).parts[:-1] for photo in listed.images}
                store.set_labels({str(p): "".join(parts[:1]) if label is None else label for p, parts in folders.items()})
            return ingest(listed, self._its_embedder, store, progress=progress)

    def add_vectors(
        self,
        vectors: ArrayLike | Vectors,
        *,
        names: Sequence[str] | None = None,
        labels: Sequence[str] | Sequence[int] | NDArray[Any] | None = None,
        photos: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> Added:
        """Add vectors (n, dim) that were made elsewhere, under their names; a name that is there gets the new vector.

        With `photos`, the folder that the names are paths in, they are the photos' vectors, and a photo that has one keeps it.
        `vectors` that name their model, as those of `facetric embed`, go into a collection of this model only; for others you
        answer that they are of one model.
        """
        given, found = given_vectors(vectors, names=names, labels=labels), self.model
        own = model_of(given, self._embedder)
        if found is not None and not found.has_name and not given.model:
            if given.vectors.shape[1] != found.dim:
                raise ValueError(
                    f"{printable(self.address)} holds vectors of {found.dim} numbers; these have {given.vectors.shape[1]}: they "
                    "are of another model, choose another place"
                )
            own = Elsewhere(found.fingerprint, found.dim, own.name)
        listed = None if photos is None else listed_photos(photos)
        with Collection(self.address, own).writing() as store:
            return ingest_vectors(given, store, self.place, listed, progress=progress)

    def update(self, photos: str | os.PathLike[str], *, progress: Progress | None = None) -> Added:
        """Make the collection agree with a folder, or with one photo: new and changed photos are embedded, those of the folder
        whose file is gone are removed. A photo that was moved keeps its vector, not its label.
        """
        self.check()
        if not absolute(photos).exists():
            raise ValueError(
                f"{printable(absolute(photos))} is not there: if it was moved, `{self._command('add', 'NEW_FOLDER')}` takes it "
                f"over without embedding it again; `{self._command('remove', photos)}` forgets it"
            )
        listed = listed_photos(photos)
        with self.writing() as store:
            done = ingest(listed, self._its_embedder, store, progress=progress)
            gone = gone_photos(store, absolute(photos), done)
            store.remove(entry.path for entry in gone)
        return replace(done, n_removed=len(gone))

    def remove(self, photos: str | os.PathLike[str]) -> int:
        """Forget a photo, or all below a folder, which need not exist any more; the number of photos. Files are not touched."""
        model, folder = self.check(), absolute(photos)
        with self._type.alone(self.address), self._type(self.address, model) as store:
            paths = [entry.path for entry in store.entries() if Path(entry.path).is_relative_to(folder)]
            if not paths:
                raise ValueError(f"{printable(self.address)} holds no photo below {printable(folder)}: nothing to remove")
            store.remove(paths)
        return len(paths)

    def re_embed(self, *, progress: Progress | None = None) -> Added:
        """Embed all photos with this model, which then is the collection's; until that is done, the old one is."""
        before = Collection(self.address).check()
        if self._type is MilvusStore:
            self._check_model(before, None)  # a collection on Milvus keeps its model
        with self._type.alone(self.address):
            with self._type(self.address, before, read_only=True) as store:
                paths = [Path(entry.path) for entry in store.entries()]
            if missing := [path for path in paths if not path.exists()]:
                raise ValueError(
                    f"{counted(len(missing), 'photo')} missing, the first is {printable(missing[0])}: put them back, or forget "
                    f"them with `{self._command('remove', missing[0].parent)}`"
                )
            with self._type(self.address, self._own_model()) as store:
                done = ingest(ImageList(Path("/"), tuple(paths)), self._its_embedder, store, progress=progress)
                store.make_current()
        self.close()
        return done

    def status(self) -> Status:
        """Counts, labels and missing files; an OSError if it is damaged."""
        model = self.check()
        with self._guard:
            self._store().check()
            entries = self._store().entries()
        labels = Counter(entry.label for entry in entries)
        gone = [entry.path for entry in entries if not os.path.exists(entry.path)]
        missing = tuple(path for path in gone if not Path(path).is_relative_to(self.place))
        return Status(model, len(entries), len({entry.content for entry in entries}), dict(sorted(labels.items())), missing)

    def entries(self) -> list[Entry]:
        """All photos, by path."""
        with self._guard:
            return self._store().entries()

    def __len__(self) -> int:
        """How many photos; 0 while there is no collection."""
        return 0 if self.model is None else len(self.entries())

    def search(
        self,
        photos: ImageLike | NDArray[np.floating] | Vectors,
        *,
        top: int = 10,
        label: str | None = None,
        at_least: float | None = None,
        classify: bool = False,
        unknown_fraction: float = UNKNOWN_FRACTION,
    ) -> list[Match]:
        """For each photo the `top` most similar ones here, exactly; equal ones by path. `match.near` are those that are similar
        enough: `at_least` this or, without it, `near_enough`.

        Takes what `Embedder.encode` takes, a path, an image, an array or a list of these, and vectors, (dim,) or (n, dim), of
        floats. Files of a folder that cannot be opened are left out, and a warning names them. Where vectors were made
        elsewhere, a text is the name of one of them.

        Only photos of `label`, and only similarities of `at_least` this. `classify` says which of the labels here a photo has;
        `unknown_fraction` of the photos are expected to have none of them.
        """
        check_search(top, at_least, unknown_fraction)
        queries = query_vectors(photos, self.check()) or self._named(photos)
        names, vectors = queries or embedded(self._its_embedder, photos)  # type: ignore[arg-type]
        found = self.nearest(vectors, top=top, label=label)
        if label is not None and found and not any(found):
            some = ", ".join(sorted({entry.label for entry in self.entries()} - {""})[:5]) or "no labels"
            way_out = f"see `facetric index status {shlex.quote(self.address)}`"
            raise ValueError(f"no photo has the label {label!r}; the index has {some}: {way_out}")
        votes = self.votes(vectors, unknown_fraction=unknown_fraction) if classify else [None] * len(names)
        matches = [matched(*one, top=top, at_least=at_least) for one in zip(names, found, votes, strict=True)]
        if classify and not any(match.vote for match in matches) and not any(entry.label for entry in self.entries()):
            again = self._command("add", "PHOTOS") + " --labels-from-folders"
            _log.warning("there is no vote, as no photo of the index has a label: add them again with `%s`", again)
        return matches

    def _named(self, photos: object) -> Queries | None:
        """The vector of that name, where a text can be nothing else."""
        if not isinstance(self._its_embedder, Elsewhere) or not isinstance(photos, str | os.PathLike):
            return None
        wanted = {str(photos), str(self.place / photos)}
        found = [entry.content for entry in self.entries() if entry.path in wanted]
        if not found:
            raise ValueError(
                f"{printable(self.address)} holds no vector called {printable(photos)!r}, and its model is not here to embed: "
                "pass a name that is in it, vectors, or the model (model=)"
            )
        with self._guard:
            return [str(photos)], self._store().vectors(found[:1])

    def votes(self, vectors: NDArray[np.float32], *, unknown_fraction: float = UNKNOWN_FRACTION) -> list[Vote | None]:
        """For each vector (q, dim) the label that it has if it has one of those here; None where no photo has a label."""
        with self._guard:
            self._votes = self._votes or Votes(self._store())
            return self._votes.of(vectors, unknown_fraction=unknown_fraction)

    def nearest(self, vectors: NDArray[np.float32], *, top: int, label: str | None = None) -> list[list[Hit]]:
        """For each vector (q, dim) the `top` most similar photos, also those that are not similar enough."""
        with self._guard:
            return self._store().search(vectors, top=top, label=label)

    def cluster(
        self, *, n_clusters: int | None = None, finer: int = 0, coarser: int = 0, decisions: Decisions | None = None
    ) -> PhotoGroups:
        """All photos in groups: as many as the pair model of the embedder finds, or `n_clusters`; nothing is read again.

        `finer` and `coarser` are steps towards smaller and larger groups. Decisions are kept to: these, or the
        collection's. Paths are those below the folder that holds all photos.
        """
        clusterer = clusterer_of(self._its_embedder, n_clusters, finer - coarser)
        with self._guard:
            decisions = self.decisions() if decisions is None else decisions
            with self._store().moment():
                entries = self._store().entries()
                vectors = self._store().vectors(dict.fromkeys(entry.content for entry in entries))
        if not entries:
            raise ValueError(f"{printable(self.address)} holds no photos: add some with `facetric index add`")
        photos = {Path(entry.path): entry.content for entry in entries}
        found = group_photos(common_folder(list(map(str, photos))), photos, vectors, *clusterer, decisions=decisions)
        return found if not isinstance(self._its_embedder, Elsewhere) else replace(found, noun="vector")

    def decisions(self) -> Decisions:
        """What people decided about the photos. A decisions.json that was put into the folder takes their place, once."""
        with self._guard:
            return self._store().decisions()

    def named(self) -> dict[str, NDArray[np.float32]]:
        """The vectors of the photos of every group that has a name, where it has two photos or more."""
        with self._guard, self._store().moment():
            contents = list(dict.fromkeys(entry.content for entry in self._store().entries()))
            found = self._store().decisions().constraints([content.hex() for content in contents], {})
            parts, points = joined(found.must_link, len(contents)), dict[str, list[int]]()
            name_of = {int(parts[point]): name for point, name in found.names.items()}
            for point, part in enumerate(parts.tolist()):
                if part in name_of and point not in found.rejected:
                    points.setdefault(name_of[part], []).append(point)
            several = {name: own for name, own in points.items() if len(own) > 1}
            return {name: self._store().vectors([contents[point] for point in own]) for name, own in several.items()}

    def decide(self, record: Mapping[str, Any], paths: Mapping[str, Sequence[str]]) -> Decisions:
        """Change the decisions, as `Decisions.changed` does, in one transaction; all decisions, when they are on the disk."""
        with self._guard:
            self._store().decisions()  # those of a decisions.json come first
            return self._store().decide(lambda before: before.changed(record, paths))

    def thumbnail(self, content: bytes) -> bytes | None:
        """A small JPEG of a photo by its content; None where the store keeps none, or one of a coarser decoding only."""
        with self._guard:
            look = self._store().looks([content]).get(content)
        return look.thumbnail if look is not None and is_sharp(look) else None

    def version(self) -> int:
        """Another number when photos or labels have changed."""
        with self._guard:
            return self._store().version()

    def close(self) -> None:
        """Close the files that searching opened; they are opened again when needed."""
        with self._guard:
            if self._reader is not None:
                self._reader.close()
                self._reader = self._votes = None

    @contextmanager
    def writing(self, *, below: Path | None = None) -> Iterator[Store]:
        """The store, for who writes photos into it. With `below`, a folder, vectors of this model may take the place of another
        one's when the block has succeeded, if the collection holds no other photos; other files may lie beside it.
        """
        own = self._own_model()
        self._type.recorded(self.address, any_folder=below is not None)  # refused before anything is made
        with self._type.alone(self.address):
            before = self._type.recorded(self.address, any_folder=below is not None)
            self._check_model(before, below)
            with self._type(self.address, own) as store:
                if before is None:
                    store.make_current()
                yield store
                if before is not None and before != own:
                    store.make_current()

    def _store(self) -> Store:
        if self._reader is None:
            self._reader = self._type(self.address, self.check(), read_only=True)
        return self._reader

    def check(self) -> Model:
        """Whose vectors are searched; a ValueError where there is no collection, or one of another model than the embedder's."""
        found = self.model
        if found is None:
            way_out = f"make it with `{self._command('add', 'PHOTOS')}`"
            raise ValueError(f"there is no index {printable(self.address)}: {way_out}")
        if self._embedder is not None:
            self._check_model(found, None)
        return found

    @property
    def _its_embedder(self) -> Embedder:
        if self._embedder is None and (found := self.model) is not None and found.is_elsewhere:
            return Elsewhere(found.fingerprint, found.dim, found.words)
        if self._embedder is None:
            raise ValueError("this needs an embedder: open_collection(address, facetric.load())")
        return self._embedder

    def _own_model(self) -> Model:
        own = self._its_embedder
        found = None if not isinstance(own, Elsewhere) else self._type.recorded(self.address, any_folder=True)
        is_known = found is not None and found.fingerprint == own.fingerprint
        return found if found is not None and is_known else Model(own.fingerprint, own.dim, own.run)

    def _check_model(self, found: Model | None, below: Path | None) -> None:
        """A ValueError where vectors are another model's, unless all photos lie below this folder and can be embedded again."""
        own = self._own_model()
        if found is None or found.fingerprint == own.fingerprint:
            return
        verb = f"re-embed {shlex.quote(self.address)}" if self._type is SqliteStore else f"add {self.address}_2 PHOTOS"
        again = f"embed its photos again with `facetric index {verb}{f' --model {shlex.quote(own.run)}' if own.run else ''}`"
        if found.is_elsewhere or isinstance(self._its_embedder, Elsewhere):
            again = "pass the model or the vectors that it was made with"
        if below is not None:
            with self._type(self.address, found, read_only=True) as store:
                if all(Path(entry.path).is_relative_to(below) for entry in store.entries()):
                    return
            again += ", or choose another place"
        raise ValueError(
            f"{printable(self.address)} holds {'' if below is None else 'other photos too, with '}vectors of another model "
            f"({found.fingerprint[:12]}; this one is {own.fingerprint[:12]}): {again}"
        )

    def _command(self, verb: str, photos: object) -> str:
        return f"facetric index {verb} {shlex.quote(self.address)} {shlex.quote(str(photos))}"


open_collection = Collection
"""How a collection is opened: `open_collection("album", facetric.load())`."""


def gone_photos(store: Store, folder: Path, done: Added) -> list[Entry]:
    """Photos of the store below a folder whose file is gone; one that is there and cannot be opened keeps its place."""
    others = [entry for entry in store.entries() if Path(entry.path) not in done.contents and not os.path.lexists(entry.path)]
    return [entry for entry in others if Path(entry.path).is_relative_to(folder)]
