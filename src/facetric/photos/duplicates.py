"""`find_duplicates`: groups of photos that are the same file, the same image, or look alike; nothing is ever deleted."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Hashable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance

from facetric.embedder import Embedder
from facetric.files import write_atomically
from facetric.images import ImageError, ImageList, Problem, open_image
from facetric.metrics import unit_rows
from facetric.photos.collection import open_collection
from facetric.photos.decisions import joined
from facetric.photos.ingest import ingest, listed_photos, read_looks, refuse_none, unchanged
from facetric.photos.near import near_groups, sketches
from facetric.photos.sqlite_store import SqliteStore
from facetric.photos.store import Look, check_ours, csv_table, store_errors
from facetric.progress import Progress
from facetric.text import readable

N_SAMPLE = 100  # photos that are altered
QUANTILE = 0.1  # of the similarities to their copies: nine of ten copies are found
_CROP, _DARKER, _QUALITY = 0.05, 0.9, 50  # of each side; brightness; JPEG
_BLOCK = 1024
COLUMNS = ("group", "kind", "suggestion", "path", "width", "height", "bytes", "content")
_MARK = ",".join(COLUMNS).encode()  # how a table begins


@dataclass(frozen=True, eq=False)
class Photo:
    """A photo of a group."""

    path: Path  # below the folder
    content: bytes  # the hash of its file
    look: Look


@dataclass(frozen=True)
class Group:
    """Photos that belong together, the one to keep first.

    exact: files of the same bytes. near: the same image, one file of each content. look-alike: one photo of each image.
    """

    kind: str
    photos: tuple[Photo, ...]

    @property
    def suggestions(self) -> tuple[str, ...]:
        """For every photo: keep, duplicate, or compare, for a look-alike is another photo."""
        return ("keep", *["compare" if self.kind == "look-alike" else "duplicate"] * (len(self.photos) - 1))


@dataclass(frozen=True)
class Duplicates:
    """Groups of exact copies first, then of near ones, then of look-alikes; unique photos are in none."""

    n_photos: int
    n_copies: int  # exact or near copies of another photo
    groups: tuple[Group, ...]
    problems: tuple[Problem, ...]
    similarity: float | None = None  # from which photos count as look-alikes

    def of_kind(self, kind: str) -> list[Group]:
        return [group for group in self.groups if group.kind == kind]

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write a CSV table, a row per photo of a group; another file is replaced with `overwrite` only."""
        check_ours(Path(path), _MARK, "duplicates", overwrite=overwrite)
        rows: list[Sequence[object]] = [COLUMNS]
        for number, group in enumerate(self.groups, start=1):
            for photo, suggestion in zip(group.photos, group.suggestions, strict=True):
                size = (photo.look.width, photo.look.height, photo.look.n_bytes)
                rows.append((number, group.kind, suggestion, readable(photo.path), *size, photo.content.hex()))
        write_atomically(Path(path), csv_table(rows))


def find_duplicates(
    photos: str | os.PathLike[str],
    embedder: Embedder | None = None,
    *,
    collection: str | os.PathLike[str] | None = None,
    table: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Duplicates:
    """Groups of duplicates among all photos in a folder: exact and near copies, and look-alikes to the embedder if one is given.

    Near copies are resized, recompressed, or cropped by up to a twentieth on every side. Of a group, the photo to keep is that
    with the most pixels, then the most bytes (the least compressed), then the shortest name (copies are called "x (1)").

    What a collection, such as an output of `facetric cluster`, holds of these photos is not decoded or embedded again; with an
    embedder, new photos are added to it. A `table`, if one is wanted, is written as `Duplicates.save` does.
    """
    if table is not None and collection is None:  # whose folder is made if need be
        check_ours(Path(table), _MARK, "duplicates", overwrite=overwrite)
    listed = listed_photos(photos)
    sample = None if embedder is None else _Sample(listed.images, embedder)
    with TemporaryDirectory(prefix="facetric-") if collection is None else nullcontext(str(collection)) as address:
        if embedder is not None and sample is not None:
            with open_collection(address, embedder).writing() as new:
                ingest(listed, embedder, new, progress=progress, seen=sample.see)
        model = open_collection(address).model
        with nullcontext() if model is None else SqliteStore(address, model, read_only=True) as store:
            found, problems = _photos(listed, store, progress)
            refuse_none(found, listed.root, problems)
            found.sort(  # the first of a group is the one to keep
                key=lambda one: (-one.look.width * one.look.height, -one.look.n_bytes, len(one.path.name), os.fsencode(one.path))
            )
            contents = _groups("exact", found, [photo.content for photo in found])
            firsts = [group.photos[0] for group in contents]
            near = near_groups(*sketches([photo.look for photo in firsts]), progress=progress)
            images = _groups("near", firsts, near.tolist())
            alike: list[Group] = []
            similarity = None
            if sample is not None and store is not None:
                known = store.known({group.photos[0].content for group in images})
                firsts = [group.photos[0] for group in images if group.photos[0].content in known]  # others changed meanwhile
                similarity = sample.similarity(store, len(firsts))
                vectors = store.vectors([photo.content for photo in firsts])
                alike = _groups("look-alike", firsts, look_alike_groups(vectors, similarity, progress=progress).tolist())
    groups = tuple(group for group in (*contents, *images, *alike) if len(group.photos) > 1)
    result = Duplicates(len(found), len(found) - len(images), groups, (*listed.problems, *problems), similarity)
    if table is not None:
        result.save(table, overwrite=overwrite)
    return result


def _photos(listed: ImageList, store: SqliteStore | None, progress: Progress | None) -> tuple[list[Photo], list[Problem]]:
    """Those that the store holds from there, the others from their files."""
    contents = {} if store is None else unchanged(store, listed.images)
    looks = {} if store is None else store.looks(set(contents.values()))
    known = [(path, content, looks[content]) for path, content in contents.items() if content in looks]
    more, problems = read_looks([path for path in listed.images if contents.get(path) not in looks], progress)
    return [Photo(path.relative_to(listed.root), content, look) for path, content, look in known + more], problems


class _Sample:
    """Photos of which altered copies are embedded, to measure how similar to a model a photo is to a copy of itself.

    How similar that is depends on the model and on the photos: the copies are cropped, darkened and compressed, and the threshold
    is the similarity that most of them reach. Photos that are decoded for their vectors are not decoded again for this.
    """

    def __init__(self, photos: Sequence[Path], embedder: Embedder) -> None:
        self._paths = {photos[place] for place in np.linspace(0, len(photos) - 1, N_SAMPLE).astype(np.int64)}
        self._embedder = embedder
        self._copies: dict[Path, NDArray[np.uint8]] = {}

    def see(self, path: Path, image: Image.Image) -> None:
        """A photo was decoded."""
        if path in self._paths:
            self._copies[path] = self._embedder.preprocessing.pixels(altered(image))

    def similarity(self, store: SqliteStore, n_photos: int) -> float:
        """What counts as alike; noted in the store until there are twice as many photos."""
        name = f"look-alikes {self._embedder.fingerprint}"
        with store_errors(store.path, reading=True):
            n_then, known = map(float, json.loads(store.noted(name) or "[0, 0]"))
        if n_then <= n_photos < 2 * n_then:
            return known
        contents = unchanged(store, list(self._paths))
        for path in sorted(contents.keys() - self._copies.keys(), key=os.fsencode):
            with suppress(ImageError):  # changed meanwhile
                self.see(path, open_image(path, at_least=self._embedder.preprocessing.at_least))
        paths = sorted(contents.keys() & self._copies.keys(), key=os.fsencode)
        copies, originals = self._embedder.encode([self._copies[path] for path in paths]), [contents[path] for path in paths]
        found = similarity_of_copies(copies, store.vectors(originals))
        store.note(name, json.dumps([n_photos, found]))
        return found


def similarity_of_copies(copies: NDArray[np.float32], vectors: NDArray[np.float32]) -> float:
    """The cosine similarity above which photos look alike, from vectors of altered copies and of the photos, (n, dim) each."""
    return float(np.quantile((unit_rows(copies) * unit_rows(vectors)).sum(axis=1), QUANTILE)) if len(copies) else 1.0


def altered(image: Image.Image) -> Image.Image:
    """A copy as people make them: cropped by a twentieth on every side, darker, compressed."""
    width, height = image.size
    x, y = round(_CROP * width), round(_CROP * height)
    cropped = image.crop((x, y, max(width - x, x + 1), max(height - y, y + 1)))
    buffer = io.BytesIO()
    ImageEnhance.Brightness(cropped).enhance(_DARKER).save(buffer, "JPEG", quality=_QUALITY)
    return Image.open(buffer).convert("RGB")


def look_alike_groups(vectors: NDArray[np.float32], threshold: float, *, progress: Progress | None = None) -> NDArray[np.int64]:
    """For every vector (n, dim) the first one that it is linked to by cosine similarities of at least `threshold`."""
    directions, n = unit_rows(vectors), len(vectors)
    groups = np.arange(n)
    for start in range(0, n, _BLOCK):
        pairs = np.argwhere(directions[start : start + _BLOCK] @ directions[start:].T >= threshold) + start
        groups = joined(groups[pairs], n)[groups]
        if progress is not None:
            progress("Comparing vectors", min(start + _BLOCK, n), n)
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    return first[inverse]


def _groups(kind: str, photos: Sequence[Photo], keys: Sequence[Hashable]) -> list[Group]:
    """Photos that have one key are a group."""
    members: dict[Hashable, list[Photo]] = {}
    for photo, key in zip(photos, keys, strict=True):
        members.setdefault(key, []).append(photo)
    return [Group(kind, tuple(own)) for own in members.values()]
