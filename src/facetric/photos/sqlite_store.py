"""An index in a folder: index.json names the model, an SQLite file of that model is the truth, search is in memory.

One process writes, guarded by a lock; any number read, each transaction whole (write-ahead logging). Embedding anew with another
model fills a second file, and replacing index.json makes it the index.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from facetric.files import remove_stale_parts, sealed, unsealed, write_atomically
from facetric.metrics import nearest, unit_rows
from facetric.photos.contract import About, Entry, Hit
from facetric.photos.store import EmbeddedPhoto, VectorStore, check_row, row_checksum, store_errors
from facetric.text import printable

_FORMAT = "facetric collection 3"
_AT_ONCE = 10_000  # rows read from the file at a time


@dataclass(frozen=True, eq=False)
class _Rows:
    """Columns, by path: a million records would take more memory than their vectors."""

    paths: list[str]
    contents: list[bytes]
    labels: list[str]
    vectors: NDArray[np.float32]  # (n, d), of length one

    def entry(self, row: int) -> Entry:
        return Entry(self.paths[row], self.contents[row], self.labels[row])


class SqliteStore(VectorStore):
    """The store of one model in one file."""

    keeps_looks = True

    def __init__(self, path: Path, *, fingerprint: str, dimensions: int, read_only: bool = False) -> None:
        super().__init__(path, fingerprint=fingerprint, dimensions=dimensions, read_only=read_only)
        self._rows: _Rows | None = None
        self._version = -1
        self._n_reads = 0
        if not read_only:
            with store_errors(path):
                self._connection.execute(
                    "CREATE TABLE IF NOT EXISTS labels (path TEXT PRIMARY KEY, label TEXT NOT NULL, checksum INTEGER NOT NULL) "
                    "WITHOUT ROWID"
                )
                self._keep_tally("labels")

    def close(self) -> None:
        self._connection.close()

    def add(self, photos: Iterable[EmbeddedPhoto]) -> None:
        self._rows = None
        super().add(photos)

    def set_labels(self, labels: Mapping[str, str]) -> None:
        self._rows = None
        pairs = [(os.fsencode(path), os.fsencode(label)) for path, label in labels.items()]
        rows = [(path, label, row_checksum(path, label)) for path, label in pairs]
        with store_errors(self.path), self._transaction():
            self._connection.executemany("INSERT OR REPLACE INTO labels VALUES (CAST(? AS TEXT), CAST(? AS TEXT), ?)", rows)

    def labels(self) -> dict[str, str]:
        """By path, also of photos that are not here yet."""
        with store_errors(self.path):
            return self._checked_labels()

    def _checked_labels(self) -> dict[str, str]:
        rows = self._connection.execute("SELECT path, label, checksum FROM labels").fetchall()
        for path, label, checksum in rows:
            check_row(checksum, path, label)
        self.check_tally("labels", [checksum for *_, checksum in rows])
        return {path: label for path, label, _ in rows}

    def remove(self, paths: Iterable[str]) -> None:
        self._rows = None
        rows = [(os.fsencode(path),) for path in paths]
        with store_errors(self.path), self._transaction():
            self._connection.executemany("DELETE FROM photos WHERE path = CAST(? AS TEXT)", rows)
            self._connection.executemany("DELETE FROM labels WHERE path = CAST(? AS TEXT)", rows)
            for table in ("vectors", "looks"):
                self._connection.execute(f"DELETE FROM {table} WHERE content NOT IN (SELECT content FROM photos)")

    def version(self) -> int:
        self._load()
        return self._n_reads

    def entries(self) -> list[Entry]:
        rows = self._load()
        return [rows.entry(row) for row in range(len(rows.paths))]

    def search(self, queries: NDArray[np.float32], *, top: int, label: str | None = None) -> list[list[Hit]]:
        rows = self._load()
        kept = None if label is None else np.flatnonzero([own == label for own in rows.labels])
        vectors = rows.vectors if kept is None else rows.vectors[kept]
        found = []
        for places, similarities in zip(*nearest(vectors, top, queries=unit_rows(queries)), strict=True):
            pairs = zip((places if kept is None else kept[places]).tolist(), similarities.tolist(), strict=True)
            found.append([Hit(rows.entry(row), similarity) for row, similarity in pairs])
        return found

    def _load(self) -> _Rows:
        """All photos, as they were at one moment; read again when another process has written."""
        with store_errors(self.path):
            self._connection.execute("BEGIN")
            try:
                (version,) = self._connection.execute("PRAGMA data_version").fetchone()
                if self._rows is None or version != self._version:
                    self._rows, self._version = self._read(), version
                    self._n_reads += 1
            finally:
                self._connection.execute("COMMIT")
        return self._rows

    def _read(self) -> _Rows:
        """Both tables from start to end: looking up a million vectors one by one takes several times as long."""
        paths: list[str] = []
        contents: list[bytes] = []
        labels: list[str] = []
        checksums: list[int] = []
        places: dict[bytes, list[int]] = {}
        known = self._checked_labels()
        for path, state, content, checksum in self._connection.execute("SELECT * FROM photos ORDER BY path"):
            check_row(checksum, path, state, content)
            places.setdefault(content, []).append(len(paths))
            paths.append(path)
            contents.append(content)
            labels.append(sys.intern(known.get(path, "")))
            checksums.append(checksum)
        self.check_tally("photos", checksums)
        vectors = np.empty((len(paths), self.dimensions), dtype=np.float32)
        checksums.clear()
        found = self._connection.execute("SELECT content, vector, checksum FROM vectors")
        while some := found.fetchmany(_AT_ONCE):
            for content, vector, checksum in some:
                check_row(checksum, content, vector)
                checksums.append(checksum)
            block = unit_rows(np.frombuffer(b"".join(vector for _, vector, _ in some), dtype="<f4").reshape(-1, self.dimensions))
            pairs = [(row, number) for number, (content, *_) in enumerate(some) for row in places.pop(content, ())]
            if pairs:
                rows, numbers = np.array(pairs).T
                vectors[rows] = block[numbers]
        self.check_tally("vectors", checksums)
        if places:
            raise sqlite3.DatabaseError(f"{len(places):,} vectors are missing")
        return _Rows(paths, contents, labels, vectors)


class IndexFolder:
    """The folder of an index; the only place that knows the names of its files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._about = path / "index.json"
        self._lock = FileLock(path / "lock")

    def about(self) -> About | None:
        """None where there is no index yet; a ValueError where there is something else."""
        if not self._about.exists():
            if (self.path / "vectors").is_dir() and (self.path / "clusters.csv").is_file():
                raise ValueError(
                    f"{printable(self.path)} was written by facetric 0.2 and cannot be searched: run `facetric cluster PHOTOS "
                    f"--output {shlex.quote(str(self.path))}` again"
                )
            if self.path.exists() and not (self.path.is_dir() and self._is_ours()):
                raise ValueError(f"{printable(self.path)} exists and is not an index of facetric: choose another name")
            return None
        return self.known()

    def known(self) -> About | None:
        """None where there is no index, whatever else is there."""
        if not self._about.exists():
            return None
        try:
            record = unsealed(self._about.read_bytes())
            if (found := record.pop("format")) == _FORMAT:
                return About(**record)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{printable(self._about)} is damaged or of another version ({error}): restore a copy, or remove "
                f"{printable(self.path)} and add the photos again"
            ) from None
        raise ValueError(
            f"{printable(self.path)} is of another version ({printable(found)}): make a new one with `facetric index add NEW "
            "PHOTOS`"
        )

    def _is_ours(self) -> bool:
        """Empty, or left by an `add` that was killed before anything was in it."""
        return all(file.name == "lock" or ".sqlite" in file.name or file.suffix == ".part" for file in self.path.iterdir())

    def write(self, about: About) -> None:
        """Make this the model of the index; files of other models are removed."""
        write_atomically(self._about, sealed({"format": _FORMAT, **vars(about)}))
        current = self._file(about).name
        for file in self.path.glob("*.sqlite*"):
            if not file.name.startswith(current):
                file.unlink()

    def store(self, about: About, *, read_only: bool) -> SqliteStore:
        """The file of this model, made where it is missing unless `read_only`."""
        file = self._file(about)
        return SqliteStore(file, fingerprint=about.model, dimensions=about.dimensions, read_only=read_only)

    def lock(self) -> None:
        """Become the one writer, or a RuntimeError."""
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise RuntimeError(
                f"{printable(self.path)} is being written by another process: wait for it, or stop it; searching works meanwhile"
            ) from None
        remove_stale_parts(self.path)

    def embed_again(self, model: str) -> str:
        """The command for another model."""
        return f"facetric index re-embed {shlex.quote(str(self.path))} {model}".rstrip()

    def unlock(self) -> None:
        self._lock.release()

    def _file(self, about: About) -> Path:
        return self.path / f"{about.model[:16]}.sqlite"
