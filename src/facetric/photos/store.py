"""What a collection keeps: photos by path, vectors of one model by content."""

from __future__ import annotations

import csv
import io
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from facetric.images import Problem
from facetric.text import printable

Item = TypeVar("Item")
ELSEWHERE = "vectors "  # how the fingerprint of a model begins of which vectors are all that is known
LOOK_BYTES = 32 * 32, 4 * 4 * 2  # of the gray image and of the colors of a look
DAMAGED = "it is damaged: restore a copy, or remove it"
_WAYS_OUT = {  # by SQLite's result code
    **dict.fromkeys((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB), DAMAGED),
    **dict.fromkeys((sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR), "free some space, and see whether the disk works"),
    **dict.fromkeys((sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY), "check its permissions"),
    **dict.fromkeys((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED), "another process holds it: try again"),
}


@dataclass(frozen=True)
class Model:
    """Whose vectors they are."""

    fingerprint: str
    dim: int
    run: str | None  # a network's name, the run folder or the file; None for the packaged one, empty where there are vectors only

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is unknown: there are its vectors only."""
        return self.run == "" or not self.has_name

    @property
    def has_name(self) -> bool:
        """Whether its vectors say whose they are."""
        return not self.fingerprint.startswith(ELSEWHERE)

    @property
    def words(self) -> str:
        return self.run or ("vectors made elsewhere" if self.is_elsewhere else "lite0, which comes with the install")


@dataclass(frozen=True, slots=True)
class Entry:
    """A photo of a collection."""

    path: str  # absolute
    content: bytes  # the hash of its bytes
    label: str  # empty without


@dataclass(frozen=True)
class Hit:
    """A photo that was found, and how similar it is: the cosine, 1 for the same direction."""

    entry: Entry
    similarity: float


@dataclass(frozen=True)
class Added:
    """What a change did to a collection."""

    contents: Mapping[Path, bytes]  # of the photos that were passed, of those that are in the collection now, by absolute path
    n_new: int  # embedded now; the others were known
    n_removed: int = 0  # whose file is gone
    problems: tuple[Problem, ...] = ()

    @property
    def n_photos(self) -> int:
        return len(self.contents)


@dataclass(frozen=True)
class Status:
    """What a collection holds."""

    model: Model
    n_photos: int
    n_contents: int  # photos without exact copies
    labels: dict[str, int]  # photos of each label, by name; "" without
    missing: tuple[str, ...]  # photos whose file is not there any more


@dataclass(frozen=True)
class Look:
    """What a photo looks like at a glance: its size, what copies are found by, and a thumbnail."""

    width: int
    height: int
    n_bytes: int  # of the file
    gray: bytes  # (32, 32)
    colors: bytes  # (4, 4, 2), Cb and Cr
    thumbnail: bytes  # a JPEG; empty where only copies are looked for


@dataclass(frozen=True)
class NewPhoto:
    """What is known of one photo after it was read."""

    path: Path
    state: str  # of the file: see `file_state`
    content: bytes  # the hash of its bytes
    vector: NDArray[np.float32] | None = None  # None when the content is known already
    look: Look | None = None  # from the same decoding; None where the store keeps none

    def with_vector(self, vector: NDArray[np.float32] | None) -> NewPhoto:
        return replace(self, vector=vector)


class StoreError(OSError):
    """A store cannot be used; the message is one line."""


@contextmanager
def store_errors(path: Path, *, reading: bool = False) -> Iterator[None]:
    """What SQLite says about its file, in one line; `reading`: also that it holds values which facetric did not write."""
    try:
        yield
    except sqlite3.Error as error:
        way_out = _WAYS_OUT.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "open it again, and report this if it stays")
        reason = " ".join(str(error).split())  # a schema that cannot be read is quoted with its line breaks
        raise StoreError(f"{printable(path)}: {reason}: {way_out}") from error
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as error:
        if not reading:
            raise
        raise StoreError(f"{printable(path)}: it holds values that facetric did not write: {DAMAGED}") from error


def batched(values: Iterable[Item], n: int) -> Iterator[list[Item]]:
    """As lists of n, the last one shorter."""
    values = iter(values)
    while some := list(islice(values, n)):
        yield some


def csv_table(rows: Iterable[Sequence[object]]) -> bytes:
    """The rows as a CSV file."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def check_ours(path: Path, mark: bytes, command: str, *, overwrite: bool | None = None) -> None:
    """A ValueError if there is something else in the place of a file that a command writes, which begins with this `mark`.

    `overwrite`: what the option of the command says, whose output goes into a folder that is there; None if it has none.
    """
    if overwrite is not None and not path.parent.is_dir():
        raise ValueError(f"the folder {printable(path.parent)} does not exist: create it, or choose another place")
    if not overwrite and path.exists() and not is_ours(path, mark):
        or_else = "" if overwrite is None else ", or pass overwrite=True"
        raise ValueError(f"{printable(path)} exists and was not written by `facetric {command}`: choose another place{or_else}")


def is_ours(path: Path, mark: bytes) -> bool:
    """Whether this is a file that begins with the mark."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return mark in file.read(1000)
