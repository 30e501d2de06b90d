"""Photos into a store: one reading and one decoding per new file, resumable, broken files listed; `embed_folder`: to a file."""

from __future__ import annotations

import csv
import io
import os
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from facetric.embedder import Embedder, Vectors
from facetric.files import write_atomically
from facetric.images import (
    ImageError,
    ImageList,
    Problem,
    content_hash,
    decode_image,
    file_state,
    list_images,
    open_file,
)
from facetric.machine import made_ahead
from facetric.photos.sqlite_store import SqliteStore
from facetric.photos.store import Model, NewPhoto, Store
from facetric.progress import Progress
from facetric.text import printable, readable

THUMBNAIL_SIDE = 240  # pixels of the longer side
_QUALITY = 80
_BATCH = 32  # photos in a transaction
_SIDE, _COLOR_SIDE = 32, 4  # of the gray image, of the two color channels
_HEAD = struct.Struct("<IIQ")
_GLANCE = 128  # a JPEG that is only looked at is decoded at no less than this
_N_GRAY, _N_COLORS = _SIDE * _SIDE, _COLOR_SIDE * _COLOR_SIDE * 2

Seen = Callable[[Path, Image.Image], None]  # called with every photo that is decoded, in any thread


@dataclass(frozen=True, eq=False)
class Look:
    """What a photo looks like at a glance: its size, a thumbnail, and what copies are found by."""

    width: int
    height: int
    n_bytes: int  # of the file
    gray: NDArray[np.uint8]  # (32, 32)
    colors: NDArray[np.uint8]  # (4, 4, 2), Cb and Cr
    thumbnail: bytes = b""  # a JPEG

    @classmethod
    def of(cls, image: Image.Image, data: bytes, kind: str, *, thumbnail: bool = True) -> Look:
        """Of a decoded, upright RGB image, the bytes of its file and their format."""
        with Image.open(io.BytesIO(data), formats=(kind,)) as header:
            width, height = header.size
        return cls(width, height, len(data), *drawn(image), thumbnail_of(image) if thumbnail else b"")

    def packed(self) -> bytes:
        """As a store keeps it."""
        head = _HEAD.pack(self.width, self.height, self.n_bytes)
        return head + self.gray.tobytes() + self.colors.tobytes() + self.thumbnail

    @classmethod
    def unpacked(cls, data: bytes) -> Look:
        """What `packed` gave."""
        values = np.frombuffer(data, dtype=np.uint8)
        start, stop = _HEAD.size + _N_GRAY, _HEAD.size + _N_GRAY + _N_COLORS
        gray = values[_HEAD.size : start].reshape(_SIDE, _SIDE)
        width, height, n_bytes = _HEAD.unpack_from(data)
        return cls(width, height, n_bytes, gray, values[start:stop].reshape(_COLOR_SIDE, _COLOR_SIDE, 2), data[stop:])

    @property
    def is_sharp(self) -> bool:
        """Whether the thumbnail is as large as one of the whole photo: a small network decodes less of a JPEG."""
        with Image.open(io.BytesIO(self.thumbnail), formats=("JPEG",)) as image:
            return max(image.size) >= min(THUMBNAIL_SIDE, max(self.width, self.height))


def drawn(image: Image.Image) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The gray image (32, 32) and the coarse colors (4, 4, 2) of an upright RGB image."""
    small = image.resize((_SIDE, _SIDE), Image.Resampling.BOX).convert("YCbCr")
    gray = np.asarray(small.getchannel("Y"))
    colors = np.asarray(small.resize((_COLOR_SIDE, _COLOR_SIDE), Image.Resampling.BOX))[:, :, 1:]
    return gray, np.ascontiguousarray(colors)


def thumbnail_of(image: Image.Image) -> bytes:
    """A small JPEG."""
    small = image.copy()
    small.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE), Image.Resampling.BOX)
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=_QUALITY)
    return buffer.getvalue()


@dataclass(frozen=True)
class Ingested:
    """The photos of a list that have vectors in the store now."""

    photos: tuple[Path, ...]  # relative to the root of the list, in its order
    contents: tuple[bytes, ...]  # of each photo: the key of its vector
    problems: tuple[Problem, ...]
    n_new: int  # photos that were embedded now


@dataclass(frozen=True)
class _Read:
    """A photo that was read: its pixels, unless they are not needed, or what is wrong with it."""

    path: Path
    state: str = ""
    content: bytes = b""
    pixels: NDArray[np.uint8] | None = None
    look: Look | None = None
    problem: str = ""


def ingest(
    listed: ImageList, embedder: Embedder, store: Store, *, progress: Progress | None = None, seen: Seen | None = None
) -> Ingested:
    """Give every photo of the list a vector in the store, where it has none; each batch is kept when it is done."""
    contents = unchanged(listed.root, listed.images, store.states(listed.images))
    waiting = [photo for photo in listed.images if photo not in contents]
    problems, n_new, known = list(listed.problems), 0, store.contents()
    embedder.prepare(len(waiting))
    read = partial(_read, listed.root, embedder, known, looks=store.keeps_looks, seen=seen)
    for batch in made_ahead(_batches(read, waiting)):
        photos = _embedded([photo for photo in batch if not photo.problem], embedder, store)
        store.add(photos)
        contents.update((photo.path, photo.content) for photo in photos)
        problems += [Problem(photo.path, photo.problem) for photo in batch if photo.problem]
        n_new += sum(photo.vector is not None for photo in photos)
        if progress is not None:
            progress("Embedding photos", len(contents) + len(problems) - len(listed.problems), len(listed.images))
    kept = tuple(photo for photo in listed.images if photo in contents)
    ordered = tuple(sorted(problems, key=lambda problem: os.fsencode(problem.path)))
    return Ingested(kept, tuple(contents[photo] for photo in kept), ordered, n_new)


def read_looks(listed: ImageList, progress: Progress | None) -> tuple[list[tuple[Path, bytes, Look]], list[Problem]]:
    """Path, content and look of every photo of a list that can be opened, and those that cannot."""
    looks, problems = [], list(listed.problems)
    for batch in made_ahead(_batches(partial(_read, listed.root, None, frozenset(), looks=True, seen=None), listed.images)):
        looks += [(photo.path, photo.content, photo.look) for photo in batch if photo.look is not None]
        problems += [Problem(photo.path, photo.problem) for photo in batch if photo.problem]
        if progress is not None:
            progress("Reading photos", len(looks) + len(problems) - len(listed.problems), len(listed.images))
    return looks, problems


def _batches(read: Callable[[Path], _Read], photos: Sequence[Path]) -> list[Callable[[], list[_Read]]]:
    return [partial(_each, read, photos[start : start + _BATCH]) for start in range(0, len(photos), _BATCH)]


def _each(read: Callable[[Path], _Read], photos: Sequence[Path]) -> list[_Read]:
    return [read(photo) for photo in photos]


def _read(root: Path, embedder: Embedder | None, known: Set[bytes], photo: Path, *, looks: bool, seen: Seen | None) -> _Read:
    """The file is read and decoded once: hash, pixels, thumbnail and sketch are of the same bytes. A known content is not."""
    path = root / photo
    state = file_state(path)  # before reading: a file that changes meanwhile is read again next time
    try:
        with open_file(path) as file:
            data = file.read()
        content = content_hash(data)
        if content in known:
            return _Read(photo, state, content)
        form = None if embedder is None else embedder.preprocessing
        image, kind = decode_image(io.BytesIO(data), path, at_least=_GLANCE if form is None else form.at_least)
        if seen is not None:
            seen(photo, image)
        look = Look.of(image, data, kind, thumbnail=form is not None) if looks else None
        return _Read(photo, state, content, None if form is None else form.pixels(image), look)
    except ImageError as error:
        return _Read(photo, problem=str(error))
    except OSError as error:  # a read error of the disk
        return _Read(photo, problem=f"{printable(path)} cannot be read ({error.strerror}): check the disk")


def _embedded(photos: Sequence[_Read], embedder: Embedder, store: Store) -> list[NewPhoto]:
    """Vectors for the contents that have none yet, each once."""
    known = store.known({photo.content for photo in photos if photo.pixels is not None})
    new = {p.content: p.pixels for p in photos if p.pixels is not None and p.content not in known}
    vectors = dict(zip(new, embedder.encode(list(new.values())), strict=True))
    return [
        NewPhoto(p.path, p.state, p.content, vectors.pop(p.content, None), b"" if p.look is None else p.look.packed())
        for p in photos
    ]


def absolute(photos: str | os.PathLike[str]) -> Path:
    return Path(os.path.abspath(Path(photos).expanduser()))


def is_below(path: str, folder: Path) -> bool:
    """Whether this is the folder, or in it."""
    return path == str(folder) or path.startswith(str(folder).rstrip(os.sep) + os.sep)


def common_folder(paths: Sequence[str]) -> Path:
    """The deepest folder that holds all these files.

    >>> common_folder(["/photos/a/1.jpg", "/photos/b/2.jpg"]).as_posix(), common_folder(["/photos/a/1.jpg"]).as_posix()
    ('/photos', '/photos/a')
    """
    return Path(os.path.commonpath([os.path.dirname(path) for path in paths]))


def listed_photos(photos: str | os.PathLike[str]) -> ImageList:
    """All photos by their absolute paths; a folder without any is a ValueError."""
    listed = list_images(photos).not_empty()
    root = absolute(listed.root)
    return ImageList(root, tuple(root / photo for photo in listed.images), listed.problems, listed.n_others)


def folder_label(root: Path, photo: Path) -> str:
    """The name of the folder directly below the root that holds a photo; empty for a photo in the root itself."""
    parts = photo.relative_to(root).parts
    return parts[0] if len(parts) > 1 else ""


def unchanged(root: Path, photos: Iterable[Path], states: Mapping[str, tuple[str, bytes]]) -> dict[Path, bytes]:
    """The contents of those photos whose files are as they were when they were read."""
    found = {}
    for photo in photos:
        state, content = states.get(str(photo), ("", b""))
        if state and state == file_state(root / photo):
            found[photo] = content
    return found


@dataclass(frozen=True)
class FolderVectors:
    """What `embed_folder` wrote, and what was left out."""

    output: Path
    n_photos: int  # rows of the output
    n_new: int  # photos that were embedded now; the others were known by their content
    problems: tuple[Problem, ...]
    problems_file: Path | None  # where they are listed


def embed_folder(
    photos: str | os.PathLike[str],
    embedder: Embedder,
    output: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> FolderVectors:
    """Write the vectors of all photos in a folder to `output`, .parquet, .npz or .csv, in the order of their paths.

    While it runs, OUTPUT.partial/ holds what is done; afterwards it is gone. A file that facetric did not write, or that holds
    vectors of another model, is replaced with `overwrite` only; else its vectors are used again for photos of the same content.
    Photos that cannot be opened are left out and listed in NAME.problems.csv beside the output.
    """
    output = Path(output).expanduser()
    beside, place = output.with_name(f"{output.stem}.problems.csv"), output.with_name(f"{output.name}.partial")
    Vectors.format_of(output)
    if output.is_dir():
        raise ValueError(f"{printable(output)} is a folder: pass a file such as {printable(output / 'vectors.npz')} (--output)")
    if not output.parent.is_dir():
        raise ValueError(f"the folder {printable(output.parent)} does not exist: create it, or choose another place (--output)")
    kept = list(_existing(output, embedder, overwrite=overwrite))
    if beside.exists() and not overwrite and not _is_problem_table(beside):
        raise ValueError(f"{printable(beside)} is needed for a list of broken photos and was not written by facetric: move it")
    listed = list_images(photos).not_empty()
    model = Model(embedder.fingerprint, embedder.dim, embedder.run)
    with SqliteStore.alone(str(place)):
        with SqliteStore(str(place), model) as store:
            store.keeps_looks = False
            store.add_vectors(kept)
            done = ingest(listed, embedder, store, progress=progress)
            if not done.photos:
                raise ValueError(
                    f"no photo in {printable(listed.root)} can be embedded; {len(done.problems)} are broken, the first is "
                    f"{done.problems[0].reason}"
                )
            vectors = store.vectors(done.contents)
        paths, contents = tuple(map(readable, done.photos)), tuple(content.hex() for content in done.contents)
        Vectors(vectors, paths, hashes=contents, model=embedder.fingerprint).save(output)
        _write_problems(beside, done.problems)
        shutil.rmtree(place, ignore_errors=True)
    return FolderVectors(output, len(done.photos), done.n_new, done.problems, beside if done.problems else None)


def _existing(output: Path, embedder: Embedder, *, overwrite: bool) -> Iterator[tuple[bytes, NDArray[np.float32]]]:
    """The vectors that the output holds already, by content; a ValueError where it must not be replaced."""
    if not output.exists():
        return
    try:
        found = Vectors.load(output)
    except ValueError:
        if overwrite:
            return
        raise ValueError(
            f"{printable(output)} exists and was not written by `facetric embed`, or is damaged: choose another --output, or "
            "pass --overwrite"
        ) from None
    if found.model == embedder.fingerprint and found.hashes:
        yield from zip(map(bytes.fromhex, found.hashes), found.vectors, strict=True)
    elif not overwrite:
        raise ValueError(
            f"{printable(output)} holds vectors of another model ({found.model[:12]}; this one is {embedder.fingerprint[:12]}): "
            "choose another --output, or pass --overwrite"
        )


def _write_problems(path: Path, problems: Sequence[Problem]) -> None:
    """A table path,problem; no file if there are none."""
    rows = [(readable(one.path), printable(one.reason.encode("utf-8", "backslashreplace").decode())) for one in problems]
    if not rows:
        if _is_problem_table(path):
            path.unlink()
        return
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([("path", "problem"), *rows])
    write_atomically(path, text.getvalue().encode())


def _is_problem_table(path: Path) -> bool:
    """Whether this is a file that `_write_problems` wrote."""
    try:
        with path.open("rb") as file:
            return file.read(13) == b"path,problem\n"
    except OSError:
        return False
