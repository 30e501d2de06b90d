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
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from facetric.files import checksummed, remove_stale_parts, write_atomically
from facetric.images import content_hash
from facetric.metrics import nearest, unit_rows
from facetric.photos.decisions import Decisions
from facetric.photos.store import DAMAGED, LOOK_BYTES, Entry, Hit, Look, Model, NewPhoto, StoreError, batched, store_errors
from facetric.text import counted, printable

FILE, DECISIONS, BEFORE = "collection.sqlite", "decisions.json", "decisions-before.json"
_FORMAT = "facetric collection 2"
_SCHEMA = """
    CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE models (number INTEGER PRIMARY KEY, fingerprint TEXT UNIQUE NOT NULL, dim INTEGER NOT NULL, run TEXT);
    CREATE TABLE photos (path TEXT PRIMARY KEY, state TEXT NOT NULL, content BLOB NOT NULL);
    CREATE TABLE vectors (model INTEGER NOT NULL, content BLOB NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (model, content));
    CREATE TABLE looks (content BLOB PRIMARY KEY, width, height, n_bytes, gray BLOB, colors BLOB, thumbnail BLOB);
    CREATE TABLE labels (path TEXT PRIMARY KEY, label TEXT NOT NULL) WITHOUT ROWID
"""
_HAS_VECTOR = "EXISTS (SELECT 1 FROM vectors WHERE model = ? AND vectors.content = photos.content)"
_AT_ONCE = 500  # values in one query
_ROWS_AT_ONCE = 10_000  # rows read from the file at a time


class SqliteStore(AbstractContextManager["SqliteStore"]):
    """The photos of a folder's collection with the vectors of one model; made where there is none unless it is `read_only`.

    Any thread may use it, one at a time. What was added is there, whole and once, when `add` returns.
    """

    keeps_looks = True  # whether it wants thumbnails and sketches too

    def __init__(self, address: str, model: Model, *, read_only: bool = False) -> None:
        self.path, self.model = Path(address).expanduser() / FILE, model
        self._entries: list[Entry] = []
        self._units = np.empty((0, 0), dtype=np.float32)  # their vectors, of length one
        self._version = -1  # of these two
        self._decided = "", Decisions()  # as they were kept, and what that says
        self._connection = _connected(self.path, "rw" if read_only else "rwc")
        try:
            if not read_only:
                self._make()
            self._number = int(self._one("SELECT number FROM models WHERE fingerprint = ?", model.fingerprint) or 0)
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        self._rows("PRAGMA journal_mode = WAL")
        with self._transaction():  # all or nothing: a kill in between would leave a file of no version
            if self._one("SELECT 1 FROM sqlite_master WHERE name = 'about'") is None:
                for statement in _SCHEMA.split(";"):
                    self._connection.execute(statement)
                self._connection.execute("INSERT INTO about VALUES ('format', ?), ('version', '0')", (_FORMAT,))
            row = (self.model.fingerprint, self.model.dim, self.model.run)
            insert = "INSERT INTO models (fingerprint, dim, run) VALUES (?, ?, ?)"
            self._connection.execute(f"{insert} ON CONFLICT (fingerprint) DO UPDATE SET run = excluded.run", row)

    @classmethod
    def recorded(cls, address: str, *, any_folder: bool = False) -> Model | None:
        """Whose vectors are searched; None where there is no collection yet, a ValueError where there is something else, unless
        a collection may be made among other files (`any_folder`).
        """
        folder = Path(address).expanduser()
        if not (folder / FILE).exists():
            if not any_folder:
                _refuse_others(folder)
            return None
        with closing(_connected(folder / FILE, "rw")) as connection, store_errors(folder / FILE, reading=True):
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'about'").fetchone() is None:
                return None  # killed before anything was in it
            (found,) = connection.execute("SELECT value FROM about WHERE name = 'format'").fetchone()
            query = "SELECT fingerprint, CAST(dim AS INTEGER), run FROM models JOIN about ON number = value WHERE name = 'model'"
            row = connection.execute(query).fetchone() if found == _FORMAT else None
        if found != _FORMAT:
            raise ValueError(
                f"{printable(folder)} is of another version ({printable(found)}): make a new one with `facetric index add NEW "
                "PHOTOS`"
            )
        return None if row is None else Model(*row)

    @classmethod
    @contextmanager
    def alone(cls, address: str) -> Iterator[None]:
        """While photos are written; a RuntimeError where another process does."""
        folder = Path(address).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(folder / "lock", timeout=0):
                remove_stale_parts(folder)
                yield
        except Timeout:
            raise RuntimeError(
                f"{printable(folder)} is being written by another process: wait for it, or stop it; searching works meanwhile"
            ) from None

    def make_current(self) -> None:
        """Have the vectors of this model searched from now on."""
        with self._transaction(changes=True):
            self._connection.execute("INSERT OR REPLACE INTO about VALUES ('model', ?)", (str(self._number),))

    def check(self) -> None:
        """A StoreError if the whole of it is not in order."""
        with store_errors(self.path):
            if (found := self._one("PRAGMA integrity_check(1)")) != "ok":
                raise StoreError(f"{printable(self.path)}: {' '.join(str(found).split())}: {DAMAGED}")

    def states(self, photos: Iterable[Path]) -> dict[str, tuple[str, bytes]]:
        """The file state and content of those photos that are here and have a vector, by path."""
        query = f"SELECT path, state, content FROM photos WHERE path IN ({{}}) AND {_HAS_VECTOR}"
        rows = self._found(query, map(os.fsencode, photos), self._number, mark="CAST(? AS TEXT)")
        return {path: (state, content) for path, state, content in rows}

    def known(self, contents: Iterable[bytes] | None = None) -> set[bytes]:
        """Those that have a vector, and need not be decoded; of all, where none are given."""
        if contents is None:
            return {content for (content,) in self._rows("SELECT content FROM vectors WHERE model = ?", self._number)}
        query = "SELECT content FROM vectors WHERE content IN ({}) AND model = ?"
        return {content for (content,) in self._found(query, contents, self._number)}

    def vectors(self, contents: Iterable[bytes]) -> NDArray[np.float32]:
        """Of known contents, in their order: (n, dim)"""
        contents = list(contents)
        query = "SELECT content, vector FROM vectors WHERE content IN ({}) AND model = ?"
        found = dict(self._found(query, dict.fromkeys(contents), self._number))
        if missing := len(set(contents) - found.keys()):
            raise StoreError(f"{printable(self.path)}: {counted(missing, 'vector')} missing: {DAMAGED}")
        with store_errors(self.path, reading=True):
            flat = np.frombuffer(b"".join(found[content] for content in contents), dtype="<f4")
            return flat.reshape(len(contents), self.model.dim).astype(np.float32)

    def looks(self, contents: Iterable[bytes]) -> dict[bytes, Look]:
        """Of those that have one."""
        columns = "content, CAST(width AS INT), CAST(height AS INT), CAST(n_bytes AS INT), gray, colors, CAST(thumbnail AS BLOB)"
        rows = self._found(f"SELECT {columns} FROM looks WHERE content IN ({{}})", contents)
        with store_errors(self.path, reading=True):
            looks = {content: Look(*look) for content, *look in rows}
            if not all((len(look.gray), len(look.colors)) == LOOK_BYTES for look in looks.values()):
                raise ValueError
        return looks

    def add(self, photos: Iterable[NewPhoto], vectors: Mapping[bytes, NDArray[np.float32]] | None = None) -> None:
        """Insert photos or replace those of the same path, all or none; one whose content is known needs no vector. `vectors` by
        content are kept too.
        """
        photos = list(photos)
        new = {**(vectors or {}), **{photo.content: photo.vector for photo in photos if photo.vector is not None}}
        with self._transaction(changes=True):
            rows = [(self._number, content, vector.astype("<f4").tobytes()) for content, vector in new.items()]
            self._connection.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)", rows)
            places = [(os.fsencode(photo.path), photo.state, photo.content) for photo in photos]
            self._connection.executemany("INSERT OR REPLACE INTO photos VALUES (CAST(? AS TEXT), ?, ?)", places)
            looks = [(photo.content, *vars(photo.look).values()) for photo in photos if photo.look is not None]
            self._connection.executemany("INSERT OR IGNORE INTO looks VALUES (?, ?, ?, ?, ?, ?, ?)", looks)

    def set_labels(self, labels: Mapping[str, str]) -> None:
        """Label photos by path, also those that are added later; an empty label takes it away."""
        rows = [(os.fsencode(path), os.fsencode(label)) for path, label in labels.items()]
        with self._transaction(changes=True):
            self._connection.executemany("INSERT OR REPLACE INTO labels VALUES (CAST(? AS TEXT), CAST(? AS TEXT))", rows)

    def remove(self, paths: Iterable[str]) -> None:
        """Forget these photos, their labels, and what no other photo of their content needs."""
        rows = [(os.fsencode(path),) for path in paths]
        with self._transaction(changes=True):
            for table in ("photos", "labels"):
                self._connection.executemany(f"DELETE FROM {table} WHERE path = CAST(? AS TEXT)", rows)
            for table in ("vectors", "looks"):
                self._connection.execute(f"DELETE FROM {table} WHERE content NOT IN (SELECT content FROM photos)")

    def moment(self) -> AbstractContextManager[None]:
        """What is read inside is of one moment, whatever others write meanwhile."""
        return self._transaction("BEGIN")

    def version(self) -> int:
        """Another number when photos or labels have changed."""
        with store_errors(self.path, reading=True):
            return int(self._one("SELECT value FROM about WHERE name = 'version'"))

    def entries(self) -> list[Entry]:
        """All photos that have a vector, by path."""
        query = "SELECT path, CAST(content AS BLOB), ifnull(label, '') FROM photos LEFT JOIN labels USING (path)"
        rows = self._rows(f"{query} WHERE {_HAS_VECTOR} ORDER BY path", self._number)
        with store_errors(self.path, reading=True):
            if not all(os.path.isabs(path) for path, *_ in rows):
                raise ValueError
            return [Entry(path, content, sys.intern(label)) for path, content, label in rows]

    def search(self, queries: NDArray[np.float32], *, top: int, label: str | None = None) -> list[list[Hit]]:
        """For each query (q, dim) the `top` most similar photos, of this label if one is given; equal ones by path. Exact."""
        self._load()
        entries, vectors = self._entries, self._units
        if label is not None:
            kept = [row for row, entry in enumerate(entries) if entry.label == label]
            entries, vectors = [entries[row] for row in kept], vectors[kept]
        found = zip(*nearest(vectors, top, queries=unit_rows(queries)), strict=True)
        return [[Hit(entries[row], min(x, 1.0)) for row, x in zip(rows, some.tolist(), strict=True)] for rows, some in found]

    def _load(self) -> None:
        """All photos, as they are at one moment. Vectors from start to end: a million, one by one, take several times as long."""
        with self.moment(), store_errors(self.path, reading=True):
            if (version := self.version()) == self._version:
                return
            entries = self.entries()
            places: dict[bytes, list[int]] = {}
            for row, entry in enumerate(entries):
                places.setdefault(entry.content, []).append(row)
            vectors = np.empty((len(entries), self.model.dim), dtype=np.float32)
            found = self._connection.execute("SELECT content, vector FROM vectors NOT INDEXED WHERE model = ?", (self._number,))
            while some := found.fetchmany(_ROWS_AT_ONCE):
                flat = np.frombuffer(b"".join(vector for _, vector in some), dtype="<f4")
                block = unit_rows(flat.reshape(len(some), self.model.dim))
                pairs = [(row, number) for number, (content, _) in enumerate(some) for row in places.pop(content, ())]
                if pairs:
                    rows, numbers = np.array(pairs).T
                    vectors[rows] = block[numbers]
            if places:
                raise ValueError
            self._entries, self._units, self._version = entries, vectors, version

    def decisions(self) -> Decisions:
        """What was decided. A decisions.json that was put into the folder since takes its place, once."""
        file = self.path.with_name(DECISIONS)
        if file.is_file() and self.noted(DECISIONS) != (digest := content_hash(file.read_bytes()).hex()):
            self.replace_decisions(Decisions.read(file))
            self.note(DECISIONS, digest)
        return self._kept_decisions()

    def replace_decisions(self, given: Decisions) -> Decisions:
        """Keep these instead; those that are lost by that are written to decisions-before.json."""

        def change(before: Decisions) -> Decisions:
            if not set(before.decisions) <= set(given.decisions):
                write_atomically(self.path.with_name(BEFORE), checksummed(before.as_dict()))
            return given

        return self.decide(change)

    def decide(self, change: Callable[[Decisions], Decisions]) -> Decisions:
        """Replace the decisions by what `change` makes of them, in one step that is on the disk when this returns."""
        with self._transaction():
            changed = change(self._kept_decisions())
            self._decided = json.dumps(changed.as_dict()), changed
            self.note("decisions", self._decided[0])
        return changed

    def _kept_decisions(self) -> Decisions:
        if (text := self.noted("decisions")) != self._decided[0]:  # another process changed them
            with store_errors(self.path, reading=True):
                self._decided = text, Decisions.from_dict(json.loads(text)) if text else Decisions()
        return self._decided[1]

    def noted(self, name: str) -> str:
        """What `note` kept under this name; empty without."""
        return str(self._one("SELECT value FROM about WHERE name = ?", name) or "")

    def note(self, name: str, value: str) -> None:
        self._rows("INSERT OR REPLACE INTO about VALUES (?, ?)", name, value)

    def close(self) -> None:
        self._connection.close()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _rows(self, query: str, *values: object) -> list[Any]:
        with store_errors(self.path):
            return self._connection.execute(query, values).fetchall()

    def _one(self, query: str, *values: object) -> Any:
        return next((value for (value,) in self._rows(query, *values)), None)

    def _found(self, query: str, keys: Iterable[bytes], *values: object, mark: str = "?") -> Iterator[Any]:
        for some in batched(keys, _AT_ONCE):
            yield from self._rows(query.format(",".join([mark] * len(some))), *some, *values)

    @contextmanager
    def _transaction(self, begin: str = "BEGIN IMMEDIATE", *, changes: bool = False) -> Iterator[None]:
        """All or nothing; `changes`: of photos or labels."""
        if self._connection.in_transaction:  # a caller's, which only reads
            yield
            return
        with store_errors(self.path):
            self._connection.execute(begin)
            try:
                yield
                if changes:
                    self._connection.execute("UPDATE about SET value = value + 1 WHERE name = 'version'")
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.rollback()  # if SQLite has not done it, as on a full disk
                raise


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
            f"{printable(folder)} is an index of facetric 0.2: make a new one with `facetric index add NEW PHOTOS "
            "--labels-from-folders`"
        )
    if folder.exists() and not (folder.is_dir() and all(file.name == "lock" for file in folder.iterdir())):
        raise ValueError(f"{printable(folder)} exists and is not an index of facetric: choose another name")
