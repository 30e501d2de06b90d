"""What a collection keeps: photos by path, vectors of one model by content."""

from __future__ import annotations

import csv
import io
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from facetric.images import Problem
from facetric.text import printable

Item = TypeVar("Item")


@dataclass(frozen=True)
class Model:
    """Whose vectors they are."""

    fingerprint: str
    dim: int
    run: str | None  # the run folder, or the exported file; None for the packaged network


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


class StoreError(OSError):
    """A store cannot be used; the message is one line."""


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """What SQLite says about its file, in one line."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        damaged = type(error) is sqlite3.DatabaseError  # "malformed", "not a database"; OperationalError is about the disk
        way_out = "it is damaged: restore a copy" if damaged else "free some space, check its permissions"
        reason = " ".join(str(error).split())  # a schema that cannot be read is quoted with its line breaks
        raise StoreError(f"{printable(path)}: {reason}: {way_out}, or remove it") from error


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
        raise ValueError(f"the folder {printable(path.parent)} does not exist: create it, or choose another place (--output)")
    if not overwrite and path.exists() and not is_ours(path, mark):
        or_else = "" if overwrite is None else ", or pass --overwrite"
        raise ValueError(
            f"{printable(path)} exists and was not written by `facetric {command}`: choose another --output{or_else}"
        )


def is_ours(path: Path, mark: bytes) -> bool:
    """Whether this is a file that begins with the mark."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return mark in file.read(1000)
