"""Rows by content: a memory-mapped array that all processes share, and to which only what is missing is appended.

A file belongs to whatever decides a row besides its content (size, network, versions): one more image costs one row.
NAME-KEY.rows holds the rows one after the other, NAME-KEY.keys the 16 bytes that each is known by, NAME-KEY.json what they are.
A key is written when its row is on the disk, so that what a killed process leaves does not count and is overwritten. One
process appends at a time, others wait for it; readers need no lock. Caches may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from facetric.files import write_unsynced
from facetric.machine import installed_version
from facetric.progress import Progress, steps_shown

KEY_BYTES = 16
SYNC_EVERY = 15.0  # seconds of work that a killed process can lose
# What rows of a kind are, as a number: raise it with every change that changes one.
FORMATS = {"prepared images": 2, "activations": 3, "vectors": 1, "file hashes": 1}
_OUR_NAME = re.compile(r".+-[0-9a-f]{16}")
_OLD_SUFFIXES, _OLD_START = (".bytes", ".f16", ".f32", ".part"), b"facetric array file "  # before 0.3


Addition = tuple[NDArray[np.int64], Callable[[NDArray[Any]], None]]


class CacheError(OSError):
    """A cache cannot be read or written; the message says where, why and what to do."""


@dataclass(frozen=True)
class MappedArray:
    """Rows of one shape and type, kept by content. `kind` (one of FORMATS) and `detail` say what they are."""

    name: str  # that the file begins with
    kind: str
    shape: tuple[int, ...]  # of a row
    dtype: str
    detail: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)  # what decides a row besides its content
    packages: tuple[str, ...] = ()  # whose versions do, too
    folder: Path | None = None  # `cache_folder()` unless given

    @property
    def path(self) -> Path:
        """The file of the rows."""
        decides = [self.kind, self.shape, self.dtype, self.settings, FORMATS[self.kind], self._versions()]
        key = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]
        name = re.sub(r"[^\w.-]", "_", self.name)
        return (self.folder or cache_folder()) / f"{name}-{key}.rows"

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def mapped(self) -> NDArray[Any]:
        """All rows there are, (n, …): read-only, read from the disk when they are used."""
        n = len(self._known()) // KEY_BYTES
        return np.memmap(self.path, dtype=self.dtype, mode="r", shape=(n, *self.shape)).view(np.ndarray)

    def find(self, keys: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The row of every key (n, 16), −1 where it is missing."""
        known = self._known()
        row_of = {known[i : i + KEY_BYTES]: i // KEY_BYTES for i in range(0, len(known), KEY_BYTES)}
        return np.array([row_of.get(key.tobytes(), -1) for key in keys], dtype=np.int64)

    @contextmanager
    def adding(self, keys: NDArray[np.uint8], *, step: str = "", progress: Progress | None = None) -> Iterator[Addition]:
        """The positions of the keys that have no row, each content once, and a function to add their rows in blocks, in order.

        No other process adds meanwhile. `progress` is told of the `step`, else a bar is shown.
        """
        if len(missing := self._missing(keys)) == 0:
            yield missing, _nothing_to_add
        else:
            with self._only_writer():
                missing = self._missing(keys)  # another process may have added some meanwhile
                with self._writer(keys[missing], step or self.kind, progress) as add:
                    yield missing, add
        with suppress(OSError):  # the time of the lock says when the cache was last used
            self.path.with_suffix(".lock").touch()

    def _missing(self, keys: NDArray[np.uint8]) -> NDArray[np.int64]:
        missing = np.flatnonzero(self.find(keys) < 0)
        return missing[np.sort(np.unique(keys[missing], axis=0, return_index=True)[1])]

    def _known(self) -> bytes:
        """The keys of the rows that are there in full."""
        try:
            n = self.path.stat().st_size // self.row_bytes
            keys = self.path.with_suffix(".keys").read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise self._cannot("read", error) from error
        return keys[: KEY_BYTES * min(n, len(keys) // KEY_BYTES)]

    @contextmanager
    def _writer(self, keys: NDArray[np.uint8], step: str, progress: Progress | None) -> Iterator[Callable[[NDArray[Any]], None]]:
        """Rows are written as they come; from time to time, the keys of those that are on the disk."""
        self._check_space(len(keys))
        n_before, n_done, n_kept, synced = len(self._known()) // KEY_BYTES, 0, 0, time.monotonic()

        def add(block: NDArray[Any]) -> None:
            nonlocal n_done
            rows.write(np.ascontiguousarray(block, dtype=self.dtype).reshape(-1).view(np.uint8).data)
            n_done += len(block)
            shown(step, n_done, len(keys))
            if time.monotonic() - synced > SYNC_EVERY:
                sync()

        def sync() -> None:
            nonlocal n_kept, synced
            rows.flush()
            os.fsync(rows.fileno())
            known.write(keys[n_kept:n_done].tobytes())
            known.flush()
            n_kept, synced = n_done, time.monotonic()

        try:
            write_unsynced(self.path.with_suffix(".json"), json.dumps(self._record(), indent=1).encode())
            for suffix in (".rows", ".keys"):
                self.path.with_suffix(suffix).touch()
            bars = steps_shown() if progress is None else nullcontext(progress)
            with self.path.open("r+b") as rows, self.path.with_suffix(".keys").open("r+b") as known, bars as shown:
                rows.seek(n_before * self.row_bytes)
                known.truncate(known.seek(n_before * KEY_BYTES))
                try:
                    yield add
                finally:
                    sync()
        except CacheError:
            raise
        except OSError as error:
            raise self._cannot("write", error) from error

    def _record(self) -> dict[str, Any]:
        made_by = f"facetric {installed_version('facetric')}"
        about = {"kind": self.kind, "detail": self.detail, "format": FORMATS[self.kind], "dtype": self.dtype}
        return {**about, "row_bytes": self.row_bytes, "versions": self._versions(), "made_by": made_by}

    def _versions(self) -> dict[str, str]:
        return {package: installed_version(package) for package in self.packages}

    def _check_space(self, n_rows: int) -> None:
        needed, free = n_rows * self.row_bytes, shutil.disk_usage(self.path.parent).free
        if free < needed:
            raise CacheError(
                f"the cache of {self.kind} needs {needed / 1e9:.1f} GB for {n_rows} images; {self.path.parent} has "
                f"{free / 1e9:.1f} GB: free some space, or set FACETRIC_CACHE to a folder on another disk"
            )

    @contextmanager
    def _only_writer(self) -> Iterator[None]:
        """One process at a time; a killed process releases the lock."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path.with_suffix(".lock"))
            try:
                lock.acquire(timeout=0)
            except Timeout:
                print(f"waiting for another process that is preparing {self.path.name}", file=sys.stderr)
                lock.acquire()
        except OSError as error:
            raise self._cannot("write", error) from error
        try:
            yield
        finally:
            lock.release()

    def _cannot(self, verb: str, error: OSError) -> CacheError:
        return CacheError(
            f"cannot {verb} the cache of {self.kind} {self.path}: {error.strerror or error}; free some space or change the "
            "permissions there, or set FACETRIC_CACHE to another folder"
        )


def cache_folder() -> Path:
    """$FACETRIC_CACHE, or facetric in the user's cache folder ($XDG_CACHE_HOME, ~/.cache)."""
    if own := os.environ.get("FACETRIC_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "facetric"


@dataclass(frozen=True)
class Cache:
    """One cache in the folder, for `facetric cache`."""

    path: Path
    kind: str
    detail: str
    n_rows: int
    n_bytes: int
    last_used: float  # seconds since 1970
    made_by: str
    state: str  # "current", "being built", or why it will not be used again


def find_caches() -> list[Cache]:
    """Every cache in `cache_folder()`, by name; files that facetric did not write are left out."""
    paths = sorted(cache_folder().iterdir()) if cache_folder().is_dir() else []
    return [cache for path in paths if _OUR_NAME.fullmatch(path.stem) and path.is_file() and (cache := _cache(path))]


def remove_cache(cache: Cache) -> bool:
    """Remove a cache; False, and nothing removed, when another process is writing to it."""
    lock = FileLock(cache.path.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    try:
        for path in (cache.path, *(cache.path.with_suffix(suffix) for suffix in (".rows", ".keys", ".json"))):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # Windows removes no open file
            cache.path.with_suffix(".lock").unlink(missing_ok=True)
    finally:
        lock.release()
    return True


def _cache(path: Path) -> Cache | None:
    try:
        used = path.with_suffix(".lock") if path.with_suffix(".lock").exists() else path
        last_used = used.stat().st_mtime
        if path.suffix in _OLD_SUFFIXES:
            with path.open("rb") as file:
                if file.read(len(_OLD_START)) == _OLD_START:
                    return Cache(path, "unknown", path.name, 0, path.stat().st_size, last_used, "", "of facetric 0.2")
        if path.suffix == ".onnx":
            return Cache(path, "exported network", path.name, 1, path.stat().st_size, last_used, "", "current")
        if path.suffix != ".json":
            return None
        record = json.loads(path.read_bytes())
        n_bytes = path.with_suffix(".rows").stat().st_size
        n_rows = min(n_bytes // record["row_bytes"], path.with_suffix(".keys").stat().st_size // KEY_BYTES)
        kind, detail, made_by = record["kind"], record["detail"], record["made_by"]
        return Cache(path.with_suffix(".rows"), kind, detail, n_rows, n_bytes, last_used, made_by, _state(path, record))
    except (FileNotFoundError, ValueError, KeyError, TypeError):  # just removed, or not ours
        return None


def _state(path: Path, record: Mapping[str, Any]) -> str:
    try:
        with FileLock(path.with_suffix(".lock"), timeout=0):
            pass
    except Timeout:
        return "being built"
    except OSError:  # a folder that cannot be written
        pass
    if FORMATS.get(record["kind"]) != record["format"]:
        return f"made by {record['made_by']}"
    for package, version in record["versions"].items():
        try:
            now = installed_version(package)
        except ImportError:
            now = "not installed"
        if now != version:
            return f"made with {package} {version}, now {now}"
    return "current"


def _nothing_to_add(block: NDArray[Any]) -> None:
    assert len(block) == 0
