"""Vectors of photos in an SQLite file, by content: killed at any moment, it holds every batch that was finished, once.

A photo is a path with the size and times of its file, and the hash of its content; a vector belongs to a content. A file that
was moved or copied is not embedded again. Write-ahead logging lets others read while one process writes.

Every row carries a checksum, which is checked when it is read, and the table `tally` the number of rows and the sum of their
checksums, for readers of whole tables: SQLite notices damage to its own structure only.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from facetric.text import printable

_FORMAT = "facetric photos 3"
_SCHEMA = """
    CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS tally (name TEXT PRIMARY KEY, n INTEGER NOT NULL, checksum INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS vectors (content BLOB PRIMARY KEY, vector BLOB NOT NULL, checksum INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS photos (
        path TEXT PRIMARY KEY, state TEXT NOT NULL, content BLOB NOT NULL, checksum INTEGER NOT NULL
    );
    CREATE TABLE IF NOT EXISTS looks (content BLOB PRIMARY KEY, look BLOB NOT NULL, checksum INTEGER NOT NULL);
"""
_AT_ONCE = 500  # values in one query


@dataclass(frozen=True)
class EmbeddedPhoto:
    """What is known of one photo after it was read."""

    path: Path
    state: str  # of the file: see `file_state`
    content: bytes  # the hash of its bytes
    vector: NDArray[np.float32] | None  # None when the content was known already
    look: bytes = b""  # a packed `Look`, from the same decoding; empty where the store keeps none


class PhotoStore(Protocol):
    """Where `embed_list` keeps photos: `VectorStore`, or a store elsewhere."""

    keeps_looks: bool  # whether it wants thumbnails and sketches too

    def states(self, photos: Iterable[Path]) -> dict[str, tuple[str, bytes]]: ...

    def contents(self) -> set[bytes]:
        """Contents that need not be decoded: all that have a vector, or none where there are too many to list."""
        ...

    def known(self, contents: Iterable[bytes]) -> set[bytes]: ...

    def add(self, photos: Iterable[EmbeddedPhoto]) -> None: ...


class StoreError(OSError):
    """The file cannot be used; the message is one line."""


class VectorStore:
    """The photos and vectors of one model in one file. One process writes, any number read, from any thread in turn."""

    keeps_looks = False

    def __init__(self, path: Path, *, fingerprint: str, dimensions: int, read_only: bool = False) -> None:
        self.path = path
        self.dimensions = dimensions
        with store_errors(path):
            self._connection = sqlite3.connect(
                f"file:{_quoted(path)}?mode={'ro' if read_only else 'rwc'}",
                uri=True,
                timeout=30,
                isolation_level=None,
                check_same_thread=False,
            )
            self._connection.text_factory = os.fsdecode  # paths need not be Unicode
            if not read_only:
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = NORMAL")
                self._connection.execute("PRAGMA recursive_triggers = ON")  # for the tally: replacing a row deletes the old one
        self._check(fingerprint, read_only)
        if not read_only:
            with store_errors(path):
                self._keep_tally("vectors", "photos")

    def _check(self, fingerprint: str, read_only: bool) -> None:
        wanted = {"format": _FORMAT, "model": fingerprint, "dimensions": str(self.dimensions)}
        with store_errors(self.path):
            is_new = self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'about'").fetchone() is None
            found = {} if is_new and not read_only else dict(self._connection.execute("SELECT name, value FROM about"))
            if not found and not read_only:
                self._connection.executescript(_SCHEMA)
                with self._transaction():  # all or nothing: a kill in between would leave a file of no version
                    self._connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", list(wanted.items()))
                return
        if found.get("model") != fingerprint:
            raise ValueError(f"{printable(self.path)} holds vectors of another model: remove it, or use that model")
        if found != wanted:
            raise ValueError(f"{printable(self.path)} was written by another version of facetric: remove it, it is made again")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._connection.close()

    def add(self, photos: Iterable[EmbeddedPhoto]) -> None:
        """Keep these photos, all or none of them."""
        photos = list(photos)
        vectors = [_with_checksum(photo.content, _packed(photo.vector)) for photo in photos if photo.vector is not None]
        rows = [_with_checksum(os.fsencode(photo.path), photo.state, photo.content) for photo in photos]
        looks = [_with_checksum(photo.content, photo.look) for photo in photos if photo.look]
        with store_errors(self.path), self._transaction():
            self._connection.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)", vectors)
            self._connection.executemany("INSERT OR REPLACE INTO photos VALUES (CAST(? AS TEXT), ?, ?, ?)", rows)
            self._connection.executemany("INSERT OR IGNORE INTO looks VALUES (?, ?, ?)", looks)

    def add_vectors(self, contents: Iterable[bytes], vectors: NDArray[np.float32]) -> None:
        """Keep vectors that were computed before."""
        rows = [_with_checksum(content, _packed(vector)) for content, vector in zip(contents, vectors, strict=True)]
        with store_errors(self.path), self._transaction():
            self._connection.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)", rows)

    def known(self, contents: Iterable[bytes]) -> set[bytes]:
        """Those contents that have a vector."""
        return {content for content, _ in self._vectors(contents)}

    def contents(self) -> set[bytes]:
        """All contents that have a vector."""
        with store_errors(self.path):
            return {content for (content,) in self._connection.execute("SELECT content FROM vectors")}

    def states(self, photos: Iterable[Path]) -> dict[str, tuple[str, bytes]]:
        """The file state and content of those photos that are here, by path."""
        names, found = [os.fsencode(photo) for photo in photos], {}
        for start in range(0, len(names), _AT_ONCE):
            some = names[start : start + _AT_ONCE]
            query = f"""
                SELECT path, state, content, checksum FROM photos
                WHERE path IN ({",".join(["CAST(? AS TEXT)"] * len(some))}) AND content IN (SELECT content FROM vectors)
            """
            with store_errors(self.path):
                for path, state, content, checksum in self._connection.execute(query, some):
                    check_row(checksum, path, state, content)
                    found[path] = (state, content)
        return found

    def vectors(self, contents: Iterable[bytes]) -> NDArray[np.float32]:
        """The vectors of these contents, which must be known, in their order: (n, dimensions)"""
        contents = list(contents)
        rows: dict[bytes, list[int]] = {}
        for row, content in enumerate(contents):
            rows.setdefault(content, []).append(row)
        found = np.empty((len(contents), self.dimensions), dtype=np.float32)
        for content, vector in self._vectors(rows):
            found[rows.pop(content)] = np.frombuffer(vector, dtype="<f4")
        if rows:
            with store_errors(self.path):
                raise sqlite3.DatabaseError(f"{len(rows):,} vectors are missing")
        return found

    def looks(self, contents: Iterable[bytes]) -> dict[bytes, bytes]:
        """The packed looks of those contents that have one."""
        return dict(self._values("looks", "look", contents))

    def _vectors(self, contents: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        return self._values("vectors", "vector", contents)

    def _values(self, table: str, column: str, contents: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        contents = list(contents)
        for start in range(0, len(contents), _AT_ONCE):
            some = contents[start : start + _AT_ONCE]
            marks = ",".join("?" * len(some))
            with store_errors(self.path):
                for content, value, checksum in self._connection.execute(
                    f"SELECT content, {column}, checksum FROM {table} WHERE content IN ({marks})", some
                ):
                    check_row(checksum, content, value)
                    yield content, value

    def _keep_tally(self, *tables: str) -> None:
        """Have SQLite count the rows of these tables and sum up their checksums, in the transaction that changes them."""
        for table in tables:
            self._connection.executescript(f"""
                INSERT OR IGNORE INTO tally VALUES ('{table}', 0, 0);
                CREATE TRIGGER IF NOT EXISTS {table}_in AFTER INSERT ON {table} BEGIN
                    UPDATE tally SET n = n + 1, checksum = checksum + new.checksum WHERE name = '{table}';
                END;
                CREATE TRIGGER IF NOT EXISTS {table}_out AFTER DELETE ON {table} BEGIN
                    UPDATE tally SET n = n - 1, checksum = checksum - old.checksum WHERE name = '{table}';
                END;
            """)

    def check_tally(self, table: str, checksums: Sequence[int]) -> None:
        """A sqlite3.DatabaseError unless these are the checksums of all rows of a table."""
        found = self._connection.execute("SELECT n, checksum FROM tally WHERE name = ?", (table,)).fetchone()
        if found != (len(checksums), sum(checksums)):
            raise sqlite3.DatabaseError(f"rows of {table} are missing")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


def check_row(checksum: int, *values: str | bytes) -> None:
    """A sqlite3.DatabaseError unless these are the values that were written with this checksum."""
    try:
        is_right = checksum == row_checksum(*values)
    except TypeError:  # not even a text
        is_right = False
    if not is_right:
        raise sqlite3.DatabaseError("the checksum of a row is wrong")


def row_checksum(*values: str | bytes) -> int:
    checksum = 0
    for value in values:
        checksum = zlib.crc32(value if isinstance(value, bytes) else os.fsencode(value), checksum)
    return checksum


def _with_checksum(*values: str | bytes) -> tuple[str | bytes | int, ...]:
    return (*values, row_checksum(*values))


def _packed(vector: NDArray[np.float32]) -> bytes:
    return vector.astype("<f4").tobytes()


def file_state(path: Path) -> str:
    """Size, times and inode of a file, as one text: while it stays, so does the content. Empty if there is no file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return ""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def unchanged(root: Path, photos: Iterable[Path], states: Mapping[str, tuple[str, bytes]]) -> dict[Path, bytes]:
    """The contents of those photos whose files are as they were when they were read."""
    found = {}
    for photo in photos:
        state, content = states.get(str(photo), ("", b""))
        if state and state == file_state(root / photo):
            found[photo] = content
    return found


def _quoted(path: Path) -> str:
    from urllib.parse import quote

    return quote(os.fsencode(path.absolute()))


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
