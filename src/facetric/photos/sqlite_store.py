"""A collection in a folder: photos, vectors of any number of models, looks, labels and decisions in collection.sqlite.

One process writes photos, guarded by a lock; any number read, and decide, each transaction whole (write-ahead logging). A vector
and a look belong to a content, so a file that was moved or copied is not read again. Search is exact, in memory.
"""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from facetric.files import remove_stale_parts
from facetric.metrics import unit_rows
from facetric.photos.decisions import DecidedPhoto, Decision, Decisions
from facetric.photos.query import Rows
from facetric.photos.store import Entry, Hit, Model, NewPhoto, StoreError
from facetric.text import printable

FILE = "collection.sqlite"
_FORMAT = "facetric collection 1"
_SCHEMA = """
    CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE models (number INTEGER PRIMARY KEY, fingerprint TEXT UNIQUE NOT NULL, dim INTEGER NOT NULL, run TEXT);
    CREATE TABLE photos (path TEXT PRIMARY KEY, state TEXT NOT NULL, content BLOB NOT NULL);
    CREATE TABLE vectors (model INTEGER NOT NULL, content BLOB NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (model, content));
    CREATE TABLE looks (content BLOB PRIMARY KEY, look BLOB NOT NULL);
    CREATE TABLE labels (path TEXT PRIMARY KEY, label TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE decisions (number INTEGER PRIMARY KEY, decision TEXT NOT NULL)
"""
_AT_ONCE = 500  # values in one query
_ROWS_AT_ONCE = 10_000  # rows read from the file at a time


class SqliteStore:
    """The photos of a folder's collection with the vectors of one model. Any thread may use it, one at a time."""

    keeps_looks = True

    def __init__(self, address: str, model: Model, *, read_only: bool = False) -> None:
        self.path, self.model = Path(address).expanduser() / FILE, model
        self._rows: Rows | None = None
        self._version = -1  # of the rows
        self._decisions = -1, Decisions()  # as they were when the file had this version
        self._connection = _connected(self.path, "rw" if read_only else "rwc")
        try:
            with store_errors(self.path):
                if not read_only:
                    self._make()
                found = self._one("SELECT number FROM models WHERE fingerprint = ?", model.fingerprint)
            self._number = 0 if found is None else int(found)
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        self._connection.execute("PRAGMA journal_mode = WAL")
        with self._transaction():  # all or nothing: a kill in between would leave a file of no version
            if self._one("SELECT 1 FROM sqlite_master WHERE name = 'about'") is None:
                for statement in _SCHEMA.split(";"):
                    self._connection.execute(statement)
                self._connection.execute("INSERT INTO about VALUES ('format', ?), ('version', '0')", (_FORMAT,))
            row = (self.model.fingerprint, self.model.dim, self.model.run)
            self._connection.execute("INSERT OR IGNORE INTO models (fingerprint, dim, run) VALUES (?, ?, ?)", row)

    @classmethod
    def recorded(cls, address: str, *, any_folder: bool = False) -> Model | None:
        folder = Path(address).expanduser()
        if not (folder / FILE).exists():
            if not any_folder:
                _refuse_others(folder)
            return None
        connection = _connected(folder / FILE, "rw")
        try:
            with store_errors(folder / FILE):
                if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'about'").fetchone() is None:
                    return None  # killed before anything was in it
                (found,) = connection.execute("SELECT value FROM about WHERE name = 'format'").fetchone()
                if found != _FORMAT:
                    raise ValueError(
                        f"{printable(folder)} is of another version ({printable(found)}): make a new one with `facetric index "
                        "add NEW PHOTOS`"
                    )
                query = "SELECT fingerprint, dim, run FROM models JOIN about ON number = value WHERE name = 'model'"
                row = connection.execute(query).fetchone()
                return None if row is None else Model(*row)
        finally:
            connection.close()

    @classmethod
    @contextmanager
    def alone(cls, address: str) -> Iterator[None]:
        folder = Path(address).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise RuntimeError(
                f"{printable(folder)} is being written by another process: wait for it, or stop it; searching works meanwhile"
            ) from None
        try:
            remove_stale_parts(folder)
            yield
        finally:
            lock.release()

    def make_current(self) -> None:
        with store_errors(self.path), self._changing():
            self._connection.execute("INSERT OR REPLACE INTO about VALUES ('model', ?)", (str(self._number),))
            self._connection.execute("UPDATE models SET run = ? WHERE number = ?", (self.model.run, self._number))

    def check(self) -> None:
        with store_errors(self.path):
            if (found := self._one("PRAGMA integrity_check(1)")) != "ok":
                raise sqlite3.DatabaseError(found)

    def states(self, photos: Iterable[Path]) -> dict[str, tuple[str, bytes]]:
        query = """
            SELECT path, state, content FROM photos WHERE path IN ({})
            AND EXISTS (SELECT 1 FROM vectors WHERE model = ? AND vectors.content = photos.content)
        """
        rows = self._found(query, [os.fsencode(photo) for photo in photos], self._number, mark="CAST(? AS TEXT)")
        return {path: (state, content) for path, state, content in rows}

    def contents(self) -> set[bytes]:
        with store_errors(self.path):
            rows = self._connection.execute("SELECT content FROM vectors WHERE model = ?", (self._number,))
            return {content for (content,) in rows}

    def known(self, contents: Iterable[bytes]) -> set[bytes]:
        query = "SELECT content FROM vectors WHERE content IN ({}) AND model = ?"
        return {content for (content,) in self._found(query, contents, self._number)}

    def vectors(self, contents: Iterable[bytes]) -> NDArray[np.float32]:
        contents = list(contents)
        rows: dict[bytes, list[int]] = {}
        for row, content in enumerate(contents):
            rows.setdefault(content, []).append(row)
        found = np.empty((len(contents), self.model.dim), dtype=np.float32)
        query = "SELECT content, vector FROM vectors WHERE content IN ({}) AND model = ?"
        for content, vector in self._found(query, rows, self._number):
            found[rows.pop(content)] = np.frombuffer(vector, dtype="<f4")
        if rows:
            raise StoreError(f"{printable(self.path)}: {len(rows):,} vectors are missing: it is damaged: restore a copy")
        return found

    def looks(self, contents: Iterable[bytes]) -> dict[bytes, bytes]:
        return dict(self._found("SELECT content, look FROM looks WHERE content IN ({})", contents))

    def add(self, photos: Iterable[NewPhoto]) -> None:
        photos = list(photos)
        new = {photo.content: photo.vector for photo in photos if photo.vector is not None}
        with store_errors(self.path), self._changing():
            self._add_vectors(new.items())
            rows = [(os.fsencode(photo.path), photo.state, photo.content) for photo in photos]
            self._connection.executemany("INSERT OR REPLACE INTO photos VALUES (CAST(? AS TEXT), ?, ?)", rows)
            looks = [(photo.content, photo.look) for photo in photos if photo.look]
            self._connection.executemany("INSERT OR IGNORE INTO looks VALUES (?, ?)", looks)

    def add_vectors(self, vectors: Iterable[tuple[bytes, NDArray[np.float32]]]) -> None:
        """Keep vectors that were computed before, by content."""
        with store_errors(self.path), self._transaction():
            self._add_vectors(vectors)

    def _add_vectors(self, vectors: Iterable[tuple[bytes, NDArray[np.float32]]]) -> None:
        rows = [(self._number, content, vector.astype("<f4").tobytes()) for content, vector in vectors]
        self._connection.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)", rows)

    def set_labels(self, labels: Mapping[str, str]) -> None:
        rows = [(os.fsencode(path), os.fsencode(label)) for path, label in labels.items()]
        with store_errors(self.path), self._changing():
            self._connection.executemany("INSERT OR REPLACE INTO labels VALUES (CAST(? AS TEXT), CAST(? AS TEXT))", rows)

    def remove(self, paths: Iterable[str]) -> None:
        rows = [(os.fsencode(path),) for path in paths]
        with store_errors(self.path), self._changing():
            for table in ("photos", "labels"):
                self._connection.executemany(f"DELETE FROM {table} WHERE path = CAST(? AS TEXT)", rows)
            for table in ("vectors", "looks"):
                self._connection.execute(f"DELETE FROM {table} WHERE content NOT IN (SELECT content FROM photos)")

    def version(self) -> int:
        with store_errors(self.path):
            return int(self._one("SELECT value FROM about WHERE name = 'version'"))

    def entries(self) -> list[Entry]:
        query = """
            SELECT path, content, ifnull(label, '') FROM photos LEFT JOIN labels USING (path)
            WHERE EXISTS (SELECT 1 FROM vectors WHERE model = ? AND vectors.content = photos.content) ORDER BY path
        """
        with store_errors(self.path):
            rows = self._connection.execute(query, (self._number,))
            return [Entry(path, content, sys.intern(label)) for path, content, label in rows]

    def search(self, queries: NDArray[np.float32], *, top: int, label: str | None = None) -> list[list[Hit]]:
        return self._load().search(queries, top, label)

    def decisions(self) -> Decisions:
        with store_errors(self.path):
            version = self._one("PRAGMA data_version")  # changes with what other connections write
            if version != self._decisions[0]:
                self._decisions = version, Decisions(tuple(map(_decision, self._decided().values())))
            return self._decisions[1]

    def decide(self, change: Callable[[Decisions], Decisions]) -> Decisions:
        with store_errors(self.path), self._transaction():
            before = self._decided()
            changed = change(Decisions(tuple(map(_decision, before.values()))))
            after = [_text(decision) for decision in changed.decisions]
            same = 0  # of the first decisions, which stay
            while same < min(len(before), len(after)) and after[same] == before[list(before)[same]]:
                same += 1
            self._connection.executemany("DELETE FROM decisions WHERE number = ?", [(n,) for n in list(before)[same:]])
            rows = [(text,) for text in after[same:]]
            self._connection.executemany("INSERT INTO decisions (decision) VALUES (?)", rows)
        self._decisions = -1, changed
        return changed

    def _decided(self) -> dict[int, str]:
        return dict(self._connection.execute("SELECT number, decision FROM decisions ORDER BY number"))

    def noted(self, name: str) -> str | None:
        with store_errors(self.path):
            found = self._one("SELECT value FROM about WHERE name = ?", name)
            return None if found is None else str(found)

    def note(self, name: str, value: str) -> None:
        with store_errors(self.path):
            self._connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (name, value))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _load(self) -> Rows:
        """All photos, as they were at one moment; read again when photos or labels have changed."""
        with store_errors(self.path):
            self._connection.execute("BEGIN")
            try:
                version = self.version()
                if self._rows is None or version != self._version:
                    self._rows, self._version = self._read(), version
            finally:
                self._connection.execute("COMMIT")
        return self._rows

    def _read(self) -> Rows:
        """Vectors from start to end: looking up a million of them one by one takes several times as long."""
        entries = self.entries()
        places: dict[bytes, list[int]] = {}
        for row, entry in enumerate(entries):
            places.setdefault(entry.content, []).append(row)
        vectors = np.empty((len(entries), self.model.dim), dtype=np.float32)
        found = self._connection.execute("SELECT content, vector FROM vectors NOT INDEXED WHERE model = ?", (self._number,))
        while some := found.fetchmany(_ROWS_AT_ONCE):
            block = unit_rows(np.frombuffer(b"".join(vector for _, vector in some), dtype="<f4").reshape(-1, self.model.dim))
            pairs = [(row, number) for number, (content, _) in enumerate(some) for row in places.pop(content, ())]
            if pairs:
                rows, numbers = np.array(pairs).T
                vectors[rows] = block[numbers]
        return Rows(entries, vectors)

    def _one(self, query: str, *values: object) -> Any:
        found = self._connection.execute(query, values).fetchone()
        return None if found is None else found[0]

    def _found(self, query: str, keys: Iterable[bytes], *values: object, mark: str = "?") -> Iterator[Any]:
        keys = list(keys)
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            with store_errors(self.path):
                yield from self._connection.execute(query.format(",".join([mark] * len(some))), (*some, *values)).fetchall()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """A transaction that changes photos or labels."""
        with self._transaction():
            yield
            self._connection.execute("UPDATE about SET value = value + 1 WHERE name = 'version'")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    with store_errors(path):
        address = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"
        made = sqlite3.connect(address, uri=True, timeout=30, isolation_level=None, check_same_thread=False)
        made.text_factory = os.fsdecode  # paths need not be Unicode
        return made


def _refuse_others(folder: Path) -> None:
    """A ValueError where a folder without a collection holds something else."""
    again = f"run `facetric cluster PHOTOS --output {shlex.quote(str(folder))}` again"
    if (folder / "vectors").is_dir() and (folder / "clusters.csv").is_file():
        raise ValueError(f"{printable(folder)} was written by facetric 0.2 and cannot be searched: {again}")
    if (folder / "index.json").is_file():
        raise ValueError(
            f"{printable(folder)} is an index of facetric 0.2: make a new one with `facetric index add NEW PHOTOS`, "
            "labels come with --labels-from-folders"
        )
    if folder.exists() and not (folder.is_dir() and all(file.name == "lock" for file in folder.iterdir())):
        raise ValueError(f"{printable(folder)} exists and is not an index of facetric: choose another name")


def _text(decision: Decision) -> str:
    return json.dumps([decision.do, [[photo.content, photo.path] for photo in decision.photos], decision.name])


def _decision(text: str) -> Decision:
    do, photos, name = json.loads(text)
    return Decision(do, tuple(DecidedPhoto(*photo) for photo in photos), name)


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
