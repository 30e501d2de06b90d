"""Rows by content: a memory-mapped array that all processes share, and to which only what is missing is appended.

A file belongs to whatever decides a row besides its content (size, network, versions): one more image costs one row.
NAME-KEY.rows holds the rows one after the other, NAME-KEY.keys the 16 bytes that each is known by, NAME-KEY.json what they are.
A key is written when its row is on the disk, so that what a killed process leaves does not count and is overwritten. One
process appends at a time, others wait for it; readers need no lock. Caches may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from facetric.files import write_atomically
from facetric.machine import installed_version
from facetric.progress import Progress, steps_shown

KEY_BYTES = 16
SYNC_EVERY = 15.0  # seconds of work that a killed process can lose
# What rows of a kind are, as a number: raise it with every change that changes one.
FORMATS = {"prepared images": 2, "activations": 3, "vectors": 1, "file hashes": 1}
_NETWORK = ("torch", "timm", "pillow")  # packages whose versions decide a row, too
PACKAGES = {"prepared images": ("pillow",), "activations": _NETWORK, "vectors": _NETWORK, "file hashes": ()}
_OUR_NAME = re.compile(r".+-[0-9a-f]{16}")
_OLD_SUFFIXES, _OLD_START = (".bytes", ".f16", ".f32", ".part"), b"facetric array file "  # before 0.3


class CacheError(OSError):
    """A cache cannot be read or written; the message says where, why and what to do."""


class MappedArray:
    """Rows of one shape and type, kept by content; `mapped_array` opens it for some images: theirs are `values[rows]`."""

    missing: NDArray[np.int64]  # positions of the images that have no row, each content once: to be written in this order
    rows: NDArray[np.int64]  # the row of every image, −1 where it is missing
    values: NDArray[Any]  # every row there is, (n, …), read from the disk when it is used

    def __init__(self, path: Path, kind: str, keys: NDArray[np.uint8], shape: tuple[int, ...], dtype: str) -> None:
        self.path, self.kind, self.keys, self.shape, self.dtype = path, kind, keys, shape, dtype
        self.row_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        self._look()

    def write(self, block: NDArray[Any]) -> None:
        """The next rows of those that are missing."""
        self._file.write(np.ascontiguousarray(block, dtype=self.dtype).reshape(-1).view(np.uint8).data)
        self._n_written += len(block)
        self._progress(self._step, self._n_written, len(self.missing))
        if time.monotonic() - self._synced > SYNC_EVERY:
            self._sync()

    def _look(self) -> None:
        """Find the rows of these images among those that are there in full."""
        try:
            n_bytes, known = self.path.stat().st_size, self.path.with_suffix(".keys").read_bytes()
        except FileNotFoundError:
            n_bytes, known = 0, b""
        except OSError as error:
            raise self._cannot("read", error) from error
        n = min(n_bytes // self.row_bytes, len(known) // KEY_BYTES)
        row_of = {known[i * KEY_BYTES : (i + 1) * KEY_BYTES]: i for i in range(n)}
        self.rows = np.array([row_of.get(key.tobytes(), -1) for key in self.keys], dtype=np.int64)
        missing = np.flatnonzero(self.rows < 0)
        self.missing = missing[np.sort(np.unique(self.keys[missing], axis=0, return_index=True)[1])]
        # numba takes plain arrays only, not the memmap subclass; an empty file cannot be mapped
        shape = (n, *self.shape)
        self.values = np.memmap(self.path, self.dtype, "r", shape=shape).view(np.ndarray) if n else np.empty(shape, self.dtype)

    @contextmanager
    def writing(self, record: Mapping[str, Any], step: str, progress: Progress) -> Iterator[None]:
        """Rows are written as they come; from time to time, the keys of those that are on the disk.

        One process at a time; a killed process releases the lock.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path.with_suffix(".lock"))
            try:
                held = lock.acquire(timeout=0)
            except Timeout:
                logging.getLogger("facetric").info("waiting for another process that is preparing %s", self.path.name)
                held = lock.acquire()
            with held:
                self._look()  # another process may have written some meanwhile
                needed, free = len(self.missing) * self.row_bytes, shutil.disk_usage(self.path.parent).free
                if free < needed:
                    raise CacheError(
                        f"the cache of {self.kind} needs {needed / 1e9:.1f} GB for {len(self.missing)} images; "
                        f"{self.path.parent} has {free / 1e9:.1f} GB: free some space, or set FACETRIC_CACHE to a folder on "
                        "another disk"
                    )
                n_before, self._step, self._progress = len(self.values), step, progress
                write_atomically(self.path.with_suffix(".json"), json.dumps(record, indent=1).encode(), sync=False)
                for suffix in (".rows", ".keys"):
                    self.path.with_suffix(suffix).touch()
                with self.path.open("r+b") as self._file, self.path.with_suffix(".keys").open("r+b") as self._known:
                    self._file.seek(n_before * self.row_bytes)
                    self._known.truncate(self._known.seek(n_before * KEY_BYTES))
                    self._n_written, self._n_kept, self._synced = 0, 0, time.monotonic()
                    try:
                        yield
                    finally:
                        self._sync()
                self._look()
        except CacheError:
            raise
        except OSError as error:
            raise self._cannot("write", error) from error

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._known.write(self.keys[self.missing[self._n_kept : self._n_written]].tobytes())
        self._known.flush()
        self._n_kept, self._synced = self._n_written, time.monotonic()

    def _cannot(self, verb: str, error: OSError) -> CacheError:
        return CacheError(
            f"cannot {verb} the cache of {self.kind} {self.path}: {error.strerror or error}; free some space or change the "
            "permissions there, or set FACETRIC_CACHE to another folder"
        )


@contextmanager
def mapped_array(
    keys: NDArray[np.uint8],
    name: str,
    kind: str,
    shape: tuple[int, ...],
    dtype: str,
    *,
    detail: str = "",
    settings: Mapping[str, Any] | None = None,
    step: str = "",
    progress: Progress | None = None,
) -> Iterator[MappedArray]:
    """The rows of the images with these content hashes (n, 16): those that are missing are to be written inside the `with`.

    The `kind` (one of FORMATS) and the `settings` decide a row besides its content; `name` and `detail` are for people. No other
    process writes meanwhile. `progress` is told of the `step`, else a bar is shown.
    """
    versions = {package: installed_version(package) for package in PACKAGES[kind]}
    decides = json.dumps([kind, shape, dtype, settings or {}, FORMATS[kind], versions], sort_keys=True, default=repr)
    key, stem = hashlib.sha256(decides.encode()).hexdigest()[:16], re.sub(r"[^\w.-]", "_", name)
    path = cache_folder() / f"{stem}-{key}.rows"
    array = MappedArray(path, kind, keys, shape, dtype)
    if len(array.missing) == 0:
        yield array
    else:
        record = {"kind": kind, "detail": detail, "format": FORMATS[kind], "dtype": dtype, "versions": versions}
        record |= {"row_bytes": array.row_bytes, "made_by": f"facetric {installed_version('facetric')}"}
        with steps_shown() if progress is None else nullcontext(progress) as told, array.writing(record, step or kind, told):
            yield array
    with suppress(OSError):  # the time of the lock says when the cache was last used
        path.with_suffix(".lock").touch()


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

    def remove(self) -> bool:
        """False, and nothing removed, when another process is writing to it."""
        try:
            with FileLock(self.path.with_suffix(".lock"), timeout=0):
                for path in (self.path, *(self.path.with_suffix(suffix) for suffix in (".rows", ".keys", ".json"))):
                    path.unlink(missing_ok=True)
                with suppress(OSError):  # Windows removes no open file
                    self.path.with_suffix(".lock").unlink(missing_ok=True)
        except Timeout:
            return False
        return True


def find_caches() -> list[Cache]:
    """Every cache in `cache_folder()`, by name; files that facetric did not write are left out."""
    paths = sorted(cache_folder().iterdir()) if cache_folder().is_dir() else []
    return [cache for path in paths if _OUR_NAME.fullmatch(path.stem) and path.is_file() and (cache := _cache(path))]


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
