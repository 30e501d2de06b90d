"""Vectors that were made elsewhere, into a store: with the photos that they are of, or by their names alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from facetric.embedder import Elsewhere, Embedder, Vectors
from facetric.images import ImageList, Problem, content_hash
from facetric.photos.ingest import Store, photo_batches, unchanged
from facetric.photos.store import ELSEWHERE, Added, NewPhoto, batched
from facetric.progress import Progress
from facetric.text import counted, printable, readable

_BATCH = 1000  # vectors in a transaction
_log = logging.getLogger("facetric")


def model_of(given: Vectors, embedder: Embedder | None) -> Embedder:
    """The model of these vectors, which have different names: the embedder that is said to have made them, else one that is not
    here.
    """
    first: dict[str, int] = {}
    for row, name in enumerate(given.names):
        if first.setdefault(name, row) != row:
            raise ValueError(
                f"names tell vectors apart; rows {first[name]} and {row} are both called {printable(name)!r}: leave one out, or "
                "choose another column (names=)"
            )
    if embedder is not None and not isinstance(embedder, Elsewhere):
        if given.model != embedder.fingerprint:
            whose = f"of another model ({given.model[:12]}" if given.model else "of a model that they do not name (none"
            raise ValueError(
                f"these vectors are {whose}; {embedder.name} is {embedder.fingerprint[:12]}): pass the model that made them, or "
                "none (model=)"
            )
        return embedder
    known = given.model or ELSEWHERE + content_hash(given.vectors.tobytes()).hex()
    return Elsewhere(known, given.vectors.shape[1], str(given.source.get("file", "vectors made elsewhere")))


def ingest_vectors(
    given: Vectors, store: Store, place: Path, listed: ImageList | None = None, *, progress: Progress | None = None
) -> Added:
    """Give every listed photo its vector, by content where hashes are given and else by path; or every name, as a path below
    `place` where there need not be a file, without photos. Each batch is kept when done.
    """
    labels = list(map(str, given.labels.tolist())) or [""] * len(given)
    if listed is not None:
        return _with_photos(given, labels, store, listed, progress)
    contents = dict[Path, bytes]()
    for rows in batched(range(len(given)), _BATCH):
        new = []
        for row in rows:
            name, vector = given.names[row], given.vectors[row]
            content = content_hash(name.encode("utf-8", "backslashreplace") + b"\0" + vector.tobytes())
            new.append(NewPhoto(_named(place, name), "", content, vector))
        n_known = len(contents)
        contents |= {one.path: one.content for one in new}
        if len(contents) < n_known + len(new):
            raise ValueError("two names lead to one path: give them names that differ in more than slashes (names=)")
        if len(given.labels):
            store.set_labels({str(one.path): labels[row] for one, row in zip(new, rows, strict=True)})
        store.add(new)
        if progress is not None:
            progress("Keeping vectors", len(contents), len(given))
    return Added(contents, len(contents))


def _with_photos(given: Vectors, labels: list[str], store: Store, listed: ImageList, progress: Progress | None) -> Added:
    contents, n_known = unchanged(store, listed.images), 0
    problems, n_known = list(listed.problems), len(contents)
    row_of = {key: row for row, key in enumerate(given.hashes or given.names)}

    def rows(photo: Path, content: bytes) -> Iterator[int]:
        keys = [content.hex()] if given.hashes else [readable(photo.relative_to(listed.root)), str(photo)]
        yield from (row_of[key] for key in keys if key in row_of)

    for read, broken in photo_batches([photo for photo in listed.images if photo not in contents]):
        found = [(photo, next(rows(photo.path, photo.content), None)) for photo, _ in read]
        for photo, row in found:
            if row is None:
                problems.append(Problem(photo.path, f"{printable(photo.path)} has no vector in the file"))
        kept = [(photo, row) for photo, row in found if row is not None]
        if len(given.labels):
            store.set_labels({str(photo.path): labels[row] for photo, row in kept})
        store.add(photo.with_vector(given.vectors[row]) for photo, row in kept)
        contents |= {photo.path: photo.content for photo, _ in kept}
        problems += broken
        if progress is not None:
            progress("Reading photos", len(contents) + len(problems) - len(listed.problems), len(listed.images))
    if not contents:
        raise ValueError(
            f"none of {counted(len(listed.images), 'photo')} in {printable(listed.root)} has a vector: names are paths below "
            f"this folder, such as {printable(readable(listed.images[0].relative_to(listed.root)))}; the first is "
            f"{printable(given.names[0])}"
        )
    used = {row for photo, content in contents.items() for row in rows(photo, content)}
    if n_others := len(given) - len(used):
        _log.warning("%s left out: there is no photo of them in %s", counted(n_others, "vector"), printable(listed.root))
    return Added(contents, len(contents) - n_known, problems=tuple(problems))


def _named(place: Path, name: str) -> Path:
    """Where a name has its place. Slashes that a path would lose are written as another character."""
    parts = PurePosixPath(name)
    if not name or name in (".", "..") or "\0" in name:
        return place / repr(name)
    return place / (
        name if str(parts) == name and not parts.is_absolute() and ".." not in parts.parts else name.replace("/", "∕")
    )
