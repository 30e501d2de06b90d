"""Photos into a store: one reading and one decoding per new file, resumable, broken files listed."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Callable, Iterator, Sequence, Set, Sized
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from facetric.embedder import Embedder
from facetric.images import ImageError, ImageList, Problem, content_hash, decode_image, file_state, list_images, open_file
from facetric.machine import made_ahead
from facetric.photos.milvus_store import MilvusStore
from facetric.photos.sqlite_store import SqliteStore
from facetric.photos.store import Added, Look, NewPhoto, batched
from facetric.progress import Progress
from facetric.text import printable

_THUMBNAIL_SIDE = 240  # pixels of the longer side
_QUALITY = 80
_BATCH = 32  # photos in a transaction
_GLANCE = 128  # a JPEG that is only looked at is decoded at no less than this
_log = logging.getLogger("facetric")

Store = SqliteStore | MilvusStore  # tests/photos/test_store_contract.py holds both to the same
Seen = Callable[[Path, Image.Image], None]  # called with every photo that is decoded, in any thread
_Read = tuple[NewPhoto, NDArray[np.uint8] | None]  # a photo without a vector, and its pixels unless they are not needed


def is_sharp(look: Look) -> bool:
    """Whether the thumbnail is as large as one of the whole photo: a small network decodes less of a JPEG."""
    with suppress(OSError), Image.open(io.BytesIO(look.thumbnail), formats=("JPEG",)) as image:
        return max(image.size) >= min(_THUMBNAIL_SIDE, max(look.width, look.height))
    return False  # it is damaged


def drawn(image: Image.Image) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The gray image (32, 32) and the coarse colors (4, 4, 2) of an upright RGB image."""
    small = image.resize((32, 32), Image.Resampling.BOX).convert("YCbCr")
    gray = np.asarray(small.getchannel("Y"))
    colors = np.asarray(small.resize((4, 4), Image.Resampling.BOX))[:, :, 1:]
    return gray, np.ascontiguousarray(colors)


def thumbnail_of(data: bytes, side: int = _THUMBNAIL_SIDE) -> bytes:
    """A small JPEG of the bytes of a photo; an ImageError if they are none."""
    return _thumbnail(decode_image(io.BytesIO(data), Path("the photo"), at_least=2 * side)[0], side)


def _thumbnail(image: Image.Image, side: int = _THUMBNAIL_SIDE) -> bytes:
    small, buffer = image.copy(), io.BytesIO()
    small.thumbnail((side, side), Image.Resampling.BOX)
    small.save(buffer, "JPEG", quality=_QUALITY)
    return buffer.getvalue()


def ingest(
    listed: ImageList, embedder: Embedder, store: Store, *, progress: Progress | None = None, seen: Seen | None = None
) -> Added:
    """Give every photo of the list, by absolute path, a vector in the store where it has none; each batch is kept when done."""
    contents = unchanged(store, listed.images)
    waiting = [photo for photo in listed.images if photo not in contents]
    problems, n_new = list(listed.problems), 0
    embedder.prepare(len(waiting))
    for read, broken in photo_batches(waiting, embedder, store.known(), looks=store.keeps_looks, seen=seen):
        known = store.known({photo.content for photo, pixels in read if pixels is not None})
        new = {photo.content: pixels for photo, pixels in read if pixels is not None and photo.content not in known}
        vectors = dict(zip(new, embedder.encode(list(new.values())), strict=True))
        n_new += len(new)
        store.add(photo.with_vector(vectors.pop(photo.content, None)) for photo, _ in read)
        contents |= {photo.path: photo.content for photo, _ in read}
        problems += broken
        if progress is not None:
            progress("Embedding photos", len(contents) + len(problems) - len(listed.problems), len(listed.images))
    kept = {photo: contents[photo] for photo in listed.images if photo in contents}
    return Added(kept, n_new, problems=tuple(sorted(problems, key=lambda problem: os.fsencode(problem.path))))


def read_looks(photos: Sequence[Path], progress: Progress | None) -> tuple[list[tuple[Path, bytes, Look]], list[Problem]]:
    """Path, content and look of every photo that can be opened, and those that cannot."""
    looks: list[tuple[Path, bytes, Look]] = []
    problems: list[Problem] = []
    for read, broken in photo_batches(photos, thumbnails=False):
        looks += [(photo.path, photo.content, photo.look) for photo, _ in read if photo.look is not None]
        problems += broken
        if progress is not None:
            progress("Reading photos", len(looks) + len(problems), len(photos))
    return looks, problems


def photo_batches(
    photos: Sequence[Path],
    embedder: Embedder | None = None,
    known: Set[bytes] = frozenset(),
    *,
    looks: bool = True,
    thumbnails: bool = True,
    seen: Seen | None = None,
) -> Iterator[tuple[list[_Read], list[Problem]]]:
    """What `_read` gives, read ahead: those that can be opened, and those that cannot. Pixels are for an embedder."""
    read = partial(_read, embedder, known, looks, thumbnails, seen)
    for batch in made_ahead(partial(lambda own: list(map(read, own)), some) for some in batched(photos, _BATCH)):
        yield [one for one in batch if not isinstance(one, Problem)], [one for one in batch if isinstance(one, Problem)]


def _read(
    embedder: Embedder | None, known: Set[bytes], looks: bool, thumbnails: bool, seen: Seen | None, photo: Path
) -> _Read | Problem:
    """The file is read and decoded once: hash, pixels, thumbnail and sketch are of the same bytes. A known content is not."""
    state = file_state(photo)  # before reading: a file that changes meanwhile is read again next time
    try:
        with open_file(photo) as file:
            data = file.read()
        content = content_hash(data)
        if content in known:
            return NewPhoto(photo, state, content), None
        form = None if embedder is None else embedder.preprocessing
        glance = 2 * _THUMBNAIL_SIDE if thumbnails else _GLANCE
        image, kind = decode_image(io.BytesIO(data), photo, at_least=glance if form is None else form.at_least)
        if seen is not None:
            seen(photo, image)
        look = None
        if looks:
            with Image.open(io.BytesIO(data), formats=(kind,)) as header:  # the image may be decoded at a fraction of its size
                width, height = header.size
            gray, colors = drawn(image)
            small = _thumbnail(image) if thumbnails else b""
            look = Look(width, height, len(data), gray.tobytes(), colors.tobytes(), small)
        return NewPhoto(photo, state, content, look=look), None if form is None else form.pixels(image)
    except ImageError as error:
        return Problem(photo, str(error))
    except OSError as error:  # a read error of the disk
        return Problem(photo, f"{printable(photo)} cannot be read ({error.strerror}): check the disk")


def absolute(photos: str | os.PathLike[str]) -> Path:
    if not isinstance(photos, str | os.PathLike):
        raise ValueError(f"photos are the path of a folder or of a photo; got {type(photos).__name__}: pass such a path")
    return Path(os.path.abspath(Path(photos).expanduser()))


def common_folder(paths: Sequence[str]) -> Path:
    """The deepest folder that holds all these files.

    >>> common_folder(["/photos/a/1.jpg", "/photos/b/2.jpg"]).as_posix(), common_folder(["/photos/a/1.jpg"]).as_posix()
    ('/photos', '/photos/a')
    """
    return Path(os.path.commonpath([os.path.dirname(path) for path in paths]))


def listed_photos(photos: str | os.PathLike[str]) -> ImageList:
    """All photos by their absolute paths; a folder without any is a ValueError."""
    root = absolute(photos)
    listed = list_images(photos).not_empty()
    root = root if root.is_dir() else root.parent
    return replace(listed, root=root, images=tuple(root / photo for photo in listed.images))


def refuse_none(opened: Sized, root: Path, problems: Sequence[Problem]) -> None:
    """A ValueError where there were photos, and none could be opened."""
    if not opened:
        broken = f"all {len(problems):,} are broken, the first is " if len(problems) > 1 else ""
        raise ValueError(f"no photo in {printable(root)} can be opened: {broken}{problems[0].reason}")


def unchanged(store: Store, photos: Sequence[Path]) -> dict[Path, bytes]:
    """The contents of those photos that the store has from files that are as they were."""
    states = store.states(photos)
    found = {photo: states[str(photo)] for photo in photos if str(photo) in states}
    return {photo: content for photo, (state, content) in found.items() if state and state == file_state(photo)}
