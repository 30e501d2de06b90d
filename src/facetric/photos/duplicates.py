"""`find_duplicates`: groups of photos that are the same file, the same picture, or look alike; nothing is ever deleted."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from facetric.embedder import Embedder
from facetric.files import sealed, unsealed, write_atomically
from facetric.images.listing import PhotoList, Problem, list_photos
from facetric.images.sketches import Sketch, read_sketches, stacked
from facetric.photos.collection import open_collection
from facetric.photos.look_alikes import look_alike_groups, similarity_of_copies
from facetric.photos.looks import Look
from facetric.photos.near import near_groups
from facetric.photos.places import absolute
from facetric.photos.sqlite_store import IndexFolder, SqliteStore
from facetric.photos.store import unchanged
from facetric.progress import OnStep
from facetric.text import printable, readable

_SIMILARITY = ".look-alikes.json"
KINDS = ("exact", "near", "look-alike")
COLUMNS = ("group", "kind", "suggestion", "path", "width", "height", "bytes", "content")


@dataclass(frozen=True)
class Group:
    """Photos that belong together, the one to keep first.

    exact: files of the same bytes. near: the same picture, one file of each content. look-alike: one photo of each picture.
    """

    kind: str
    photos: tuple[Sketch, ...]

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
        check_table(Path(path), overwrite=overwrite)
        text = io.StringIO(newline="")
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(COLUMNS)
        for number, group in enumerate(self.groups, start=1):
            for photo, suggestion in zip(group.photos, group.suggestions, strict=True):
                size = (photo.width, photo.height, photo.n_bytes)
                rows.writerow((number, group.kind, suggestion, readable(photo.path), *size, photo.content.hex()))
        write_atomically(Path(path), text.getvalue().encode())


def check_table(path: Path, *, overwrite: bool) -> None:
    """A ValueError if the table must not, or cannot, be written here."""
    if not path.parent.is_dir():
        raise ValueError(f"the folder {printable(path.parent)} does not exist: create it, or choose another place (--output)")
    if path.exists() and not overwrite:
        header = (",".join(COLUMNS) + "\n").encode()
        if path.is_dir() or path.read_bytes()[: len(header)] != header:
            raise ValueError(
                f"{printable(path)} exists and was not written by `facetric duplicates`: choose another --output, or pass "
                "--overwrite"
            )


def find_duplicates(
    photos: str | os.PathLike[str],
    encoder: Embedder | None = None,
    *,
    collection: str | os.PathLike[str] | None = None,
    on_step: OnStep | None = None,
) -> Duplicates:
    """Groups of duplicates among all photos in a folder: exact and near copies, and look-alikes to the encoder if one is given.

    Near copies are resized, recompressed, or cropped by up to a twentieth on every side. Of a group, the photo to keep is that
    with the most pixels, then the most bytes (the least compressed), then the shortest name (copies are called "x (1)").

    What an index, or an output of `facetric cluster`, holds of these photos is not decoded or embedded again (`collection`); with
    an encoder, new photos are added to it.
    """
    listed = list_photos(photos)
    step = on_step or (lambda name, done, total: None)
    with _opened(collection, encoder, photos if listed.photos else None, step) as (store, place):
        sketches, problems = _sketches(listed, store, step)
        if not sketches:
            raise ValueError(f"there are no photos that can be opened in {printable(listed.root)}: pass a folder that holds some")
        sketches.sort(key=_preference)  # the first of a group is the one to keep
        contents = _groups("exact", sketches, _first_of([sketch.content for sketch in sketches]))
        sketches = [group.photos[0] for group in contents]
        grays, colors = stacked(sketches)
        linked = near_groups(grays, colors, on_progress=lambda done, total: step("Comparing photos", done, total))
        pictures = _groups("near", sketches, linked)
        looks: list[Group] = []
        similarity = None
        if encoder is not None and store is not None and place is not None:
            firsts = [group.photos[0] for group in pictures]
            looks, similarity = _look_alikes(listed.root, firsts, store, place, encoder, step)
    n_photos = sum(len(group.photos) for group in contents)
    found = tuple(group for group in (*contents, *pictures, *looks) if len(group.photos) > 1)
    return Duplicates(n_photos, n_photos - len(pictures), found, tuple(problems), similarity)


@contextmanager
def _opened(
    collection: str | os.PathLike[str] | None, encoder: Embedder | None, photos: str | os.PathLike[str] | None, step: OnStep
) -> Iterator[tuple[SqliteStore | None, Path | None]]:
    """The store that holds the photos, with those that are new if there is an encoder, and its folder."""
    if collection is None and (encoder is None or photos is None):
        yield None, None
        return
    with TemporaryDirectory(prefix="facetric-") if collection is None else nullcontext(str(collection)) as address:
        folder = IndexFolder(Path(address).expanduser())
        if encoder is not None and photos is not None:
            index = open_collection(folder.path, encoder)
            index.add(photos, on_progress=lambda n, total: step("Embedding photos", n, total))
        about = folder.about()
        if about is None:
            yield None, None
            return
        with folder.store(about, read_only=True) as store:
            yield store, folder.path


def _sketches(listed: PhotoList, store: SqliteStore | None, step: OnStep) -> tuple[list[Sketch], list[Problem]]:
    """Of all photos: those that the store holds from there, the others from their files."""
    known: dict[Path, bytes] = {}
    looks: dict[bytes, bytes] = {}
    if store is not None:
        root = absolute(listed.root)
        paths = [root / photo for photo in listed.photos]
        found = unchanged(root, paths, store.states(paths))
        looks = store.looks(set(found.values()))
        known = {path.relative_to(root): content for path, content in found.items() if content in looks}
    sketches = [Look.unpacked(looks[content]).sketch(photo, content) for photo, content in known.items()]
    others = PhotoList(listed.root, tuple(photo for photo in listed.photos if photo not in known), listed.problems)
    more, problems = read_sketches(others, on_progress=lambda done, total: step("Reading photos", done, total))
    return sketches + more, problems


def _look_alikes(
    root: Path, sketches: Sequence[Sketch], store: SqliteStore, place: Path, encoder: Embedder, step: OnStep
) -> tuple[list[Group], float]:
    """Groups of photos that look alike, and the similarity that counts as alike."""
    known = store.known({sketch.content for sketch in sketches})
    sketches = [sketch for sketch in sketches if sketch.content in known]  # without files that changed meanwhile
    vectors = store.vectors([sketch.content for sketch in sketches])
    similarity = _similarity([root / sketch.path for sketch in sketches], vectors, place, encoder)
    found = look_alike_groups(vectors, similarity, on_progress=lambda n, total: step("Comparing vectors", n, total))
    return _groups("look-alike", sketches, found), similarity


def _similarity(photos: Sequence[Path], vectors: NDArray[np.float32], place: Path, encoder: Embedder) -> float:
    """What counts as alike, measured on a sample of these photos; kept in the folder until there are twice as many."""
    file = place / _SIMILARITY
    try:
        record = unsealed(file.read_bytes())
        if record["model"] == encoder.fingerprint and record["n_photos"] <= len(photos) < 2 * record["n_photos"]:
            return float(record["similarity"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # never measured, or damaged
    found = similarity_of_copies(photos, vectors, encoder)
    write_atomically(file, sealed({"model": encoder.fingerprint, "n_photos": len(photos), "similarity": found}))
    return found


def _groups(kind: str, sketches: Sequence[Sketch], first: NDArray[np.int64]) -> list[Group]:
    """A group for every photo that is related to no earlier one; `first` (n,) is the first photo that each belongs to."""
    members: dict[int, list[Sketch]] = {}
    for sketch, number in zip(sketches, first.tolist(), strict=True):
        members.setdefault(number, []).append(sketch)
    return [Group(kind, tuple(photos)) for photos in members.values()]


def _preference(photo: Sketch) -> tuple[int, int, int, bytes]:
    return -photo.width * photo.height, -photo.n_bytes, len(photo.path.name), os.fsencode(photo.path)


def _first_of(contents: Sequence[bytes]) -> NDArray[np.int64]:
    first: dict[bytes, int] = {}
    return np.array([first.setdefault(content, i) for i, content in enumerate(contents)], dtype=np.int64)
