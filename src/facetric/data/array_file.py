"""One array in a memory-mapped file that all processes share: built once, keyed by what it was made from, never half there.

A file is written under a temporary name, synced, and renamed, one builder at a time: other processes wait for it. What is
found under the final name is trusted after its header and length are checked, and its checksum too when the file has been
touched since it was written (or with `verify=True`). Anything else is rebuilt. Files may be deleted at any time.

A builder notes every few seconds how far it is. When it is killed, the next one goes on from there.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from rich.console import Console

NOTE_EVERY = 15.0  # seconds of work that a killed builder can lose
_MAGIC = b"facetric array file 1\n"
_HEADER_BYTES = 4096  # a page, so that rows are aligned

Rows = Callable[[int], Generator[NDArray[Any], None, None]]  # blocks of rows, from this row on; the same blocks every time


class PreparedCacheError(OSError):
    """A cache cannot be read or written; the message says where, why and what to do."""


@dataclass(frozen=True)
class ArrayFile:
    """Where an array is kept, what it was made from (`key`) and what it looks like; `kind` names it in messages."""

    path: Path
    key: str
    shape: tuple[int, ...]
    dtype: str
    kind: str

    @property
    def n_bytes(self) -> int:
        """Size of the file."""
        return _HEADER_BYTES + self.shape[0] * self._row_bytes

    @property
    def _row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * np.dtype(self.dtype).itemsize

    def mapped(self) -> NDArray[Any]:
        """The array, read-only, read from the disk when it is used."""
        array = np.memmap(self.path, dtype=self.dtype, mode="r", offset=_HEADER_BYTES, shape=self.shape)
        return array.view(np.ndarray)

    def ensure(self, build: Callable[[], None], *, verify: bool = False) -> None:
        """Call `build`, which has to call `write`, unless the file is there and good."""
        if not self.is_good(verify=verify):
            with self._only_builder():
                if not self.is_good(verify=verify):  # unless another process has built it meanwhile
                    build()

    def is_good(self, *, verify: bool = False) -> bool:
        """Whether the whole and undamaged file with this key is there."""
        try:
            with self.path.open("rb") as file:
                header = _unpacked_header(file.read(_HEADER_BYTES))
                status = os.fstat(file.fileno())
                if not self._describes(header) or "written" not in header or status.st_size != self.n_bytes:
                    return False
                if status.st_mtime_ns == header["written"] and not verify:
                    return True
                if _checksum(file, self.n_bytes - _HEADER_BYTES) != header["checksum"]:
                    return False
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._cannot("read", error) from error
        with suppress(OSError):  # a file that was copied need not be read through again, if we may say so
            os.utime(self.path, ns=(header["written"], header["written"]))
        return True

    def write(self, rows: Rows) -> None:
        """Write all rows, or those that a killed builder left to do. An error leaves nothing behind, an interrupt its notes."""
        part = self.path.with_suffix(".part")
        n_done, checksum = self._progress(part)
        self._check_space(n_done)
        try:
            with part.open("r+b" if n_done else "wb") as file, closing(rows(n_done)) as blocks:
                file.seek(_HEADER_BYTES + n_done * self._row_bytes)
                file.truncate()
                noted = time.monotonic()
                for block in blocks:
                    data = np.ascontiguousarray(block, dtype=self.dtype).data
                    checksum = zlib.crc32(data, checksum)
                    file.write(data)
                    n_done += len(block)
                    if time.monotonic() - noted > NOTE_EVERY:
                        self._note(file, {"n_done": n_done, "checksum": checksum})
                        noted = time.monotonic()
                assert n_done == self.shape[0]
                written = int(time.time()) * 10**9  # whole seconds: any file system can hold it
                self._note(file, {"checksum": checksum, "written": written})
            os.utime(part, ns=(written, written))
            part.replace(self.path)
            _sync_folder(self.path.parent)
        except Exception as error:
            part.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise self._cannot("write", error) from error
            raise

    def _describes(self, header: dict[str, Any]) -> bool:
        return [header.get(name) for name in ("key", "shape", "dtype")] == [self.key, list(self.shape), self.dtype]

    def _progress(self, part: Path) -> tuple[int, int]:
        """Rows that a killed builder has left, and their checksum; none when they are not what it wrote."""
        try:
            with part.open("rb") as file:
                header = _unpacked_header(file.read(_HEADER_BYTES))
                if self._describes(header) and "n_done" in header:
                    n_done, checksum = int(header["n_done"]), int(header["checksum"])
                    if _checksum(file, n_done * self._row_bytes) == checksum:
                        return n_done, checksum
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._cannot("read", error) from error
        return 0, 0

    def _note(self, file: BinaryIO, state: dict[str, int]) -> None:
        file.flush()
        os.fsync(file.fileno())  # the rows before the word that they are there
        end = file.tell()
        file.seek(0)
        file.write(_packed_header({"key": self.key, "shape": list(self.shape), "dtype": self.dtype, **state}))
        file.flush()
        os.fsync(file.fileno())
        file.seek(end)

    def _check_space(self, n_done: int) -> None:
        needed = self.n_bytes - n_done * self._row_bytes
        free = shutil.disk_usage(self.path.parent).free
        if free < needed:
            raise PreparedCacheError(
                f"the {self.kind} of {self.shape[0]} images needs {needed / 1e9:.1f} GB; {self.path.parent} has "
                f"{free / 1e9:.1f} GB: free some space, or set FACETRIC_CACHE to a folder on another disk"
            )

    @contextmanager
    def _only_builder(self) -> Iterator[None]:
        """One process at a time; a killed one lets go."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path.with_suffix(".lock"))
            try:
                lock.acquire(timeout=0)
            except Timeout:
                Console(stderr=True, soft_wrap=True).print(
                    f"waiting for another process that prepares {self.path.name}", highlight=False
                )
                lock.acquire()
        except OSError as error:
            raise self._cannot("write", error) from error
        try:
            yield
        finally:
            lock.release()

    def _cannot(self, verb: str, error: OSError) -> PreparedCacheError:
        reason = error.strerror or str(error)
        return PreparedCacheError(
            f"cannot {verb} the {self.kind} {self.path}: {reason}; free some space or change the permissions there, "
            "or set FACETRIC_CACHE to another folder"
        )


def cache_folder() -> Path:
    """$FACETRIC_CACHE, or facetric in the user's cache folder ($XDG_CACHE_HOME, ~/.cache)."""
    if own := os.environ.get("FACETRIC_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "facetric"


def _packed_header(header: dict[str, Any]) -> bytes:
    text = json.dumps(header).encode()
    return (_MAGIC + b"%08x" % zlib.crc32(text) + text).ljust(_HEADER_BYTES, b"\0")


def _unpacked_header(raw: bytes) -> dict[str, Any]:
    """Empty when it is not what `_packed_header` made, byte for byte."""
    text = raw[len(_MAGIC) + 8 :].rstrip(b"\0")
    if not raw.startswith(_MAGIC + b"%08x" % zlib.crc32(text)):
        return {}
    header: dict[str, Any] = json.loads(text)
    return header


def _checksum(file: BinaryIO, n_bytes: int) -> int:
    """Of this many bytes from here, fewer where the file ends."""
    checksum = 0
    while block := file.read(min(n_bytes, 1 << 22)):
        checksum = zlib.crc32(block, checksum)
        n_bytes -= len(block)
    return checksum


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":  # elsewhere a folder cannot be opened; the rename is atomic all the same
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
