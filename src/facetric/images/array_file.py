"""One array in a memory-mapped file that all processes share: built once, keyed by its inputs, never half-written.

A file is a page of header, the rows, a CRC-32 of every 4 MiB of them, and a description of what they were made from. It is
written under a temporary name, synced, and renamed, one builder at a time: other processes wait for it. A builder records
its progress every few seconds; if it is killed, the next one continues from there.

A file is checked whenever it is opened: its header, its length, its table of checksums, and 8 blocks of 4 MiB, namely the first,
the last and 6 others at random. All blocks are read when the file's modification time is not the one that its builder set,
and with `verify=True`. A file that fails is rebuilt. Files may be deleted at any time.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from rich.console import Console

from facetric.images.array_format import BLOCK_BYTES, HEADER_BYTES, Checksums, packed_header, sampled_blocks, unpacked_header
from facetric.progress import Progress

NOTE_EVERY = 15.0  # seconds of work that a killed builder can lose
PART, LOCK = ".part", ".lock"  # suffixes of an unfinished file and of the lock of its builder

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

    @classmethod
    def stored_at(cls, path: Path) -> ArrayFile | None:
        """What the header of a finished file says; None when there is no such file in the current format."""
        try:
            with path.open("rb") as file:
                header = unpacked_header(file.read(HEADER_BYTES))
        except FileNotFoundError:
            return None
        return cls(path, header["key"], tuple(header["shape"]), header["dtype"], "cache") if "written" in header else None

    @property
    def n_bytes(self) -> int:
        """Size of the file, without its description."""
        return self._end_of_rows + 4 * self.n_blocks

    @property
    def n_blocks(self) -> int:
        """Parts of the rows that have a checksum of their own."""
        return -(-(self._end_of_rows - HEADER_BYTES) // BLOCK_BYTES)

    @property
    def _end_of_rows(self) -> int:
        return HEADER_BYTES + self.shape[0] * self._row_bytes

    @property
    def _row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * np.dtype(self.dtype).itemsize

    def mapped(self) -> NDArray[Any]:
        """The array, read-only, read from the disk when it is used."""
        array = np.memmap(self.path, dtype=self.dtype, mode="r", offset=HEADER_BYTES, shape=self.shape)
        return array.view(np.ndarray)

    def description(self) -> dict[str, Any]:
        """What `write` was told about the array; empty when the file is gone or this part of it is damaged."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.n_bytes)
                found: dict[str, Any] = json.loads(zlib.decompress(file.read()))
                return found
        except (OSError, ValueError, zlib.error):
            return {}

    def ensure(self, build: Callable[[], None], *, verify: bool = False) -> None:
        """Call `build`, which must call `write`, unless the file exists and is valid."""
        if not self.is_good(verify=verify):
            with self._only_builder():
                if not self.is_good(verify=verify):  # another process may have built it meanwhile
                    build()
        with suppress(OSError):  # the time of the lock says when the file was last used
            self.path.with_suffix(LOCK).touch()

    def is_good(self, *, verify: bool = False, on_progress: Progress | None = None) -> bool:
        """Whether the file with this key exists and passes the checks; `on_progress` reports the blocks read."""
        try:
            with self.path.open("rb") as file:
                header = unpacked_header(file.read(HEADER_BYTES))
                status = os.fstat(file.fileno())
                if not self._describes(header) or "written" not in header:
                    return False
                if status.st_size != self.n_bytes + header["description_bytes"]:
                    return False
                everything = verify or status.st_mtime_ns != header["written"]
                blocks = range(self.n_blocks) if everything else sampled_blocks(self.n_blocks)
                if not self._checksums_hold(file, header, blocks, on_progress or (lambda done, total: None)):
                    return False
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._cannot("read", error) from error
        if everything:
            with suppress(OSError):  # so that a copied file is read in full only once, where we may write
                os.utime(self.path, ns=(header["written"], header["written"]))
        return True

    def write(self, rows: Rows, *, description: Mapping[str, Any] | None = None) -> None:
        """Write all rows, or those that a killed builder left undone. An error leaves nothing behind, an interrupt its progress.

        `description` (what JSON can hold) is kept with the rows.
        """
        part = self.path.with_suffix(PART)
        n_done, checksums = self._progress(part)
        self._check_space(n_done)
        try:
            with part.open("r+b" if n_done else "wb") as file, closing(rows(n_done)) as blocks:
                file.seek(HEADER_BYTES + n_done * self._row_bytes)
                file.truncate()
                self._note(file, n_done=n_done, checksum=zlib.crc32(checksums.table))  # an unfinished file carries its key
                noted = time.monotonic()
                for block in blocks:
                    data = np.ascontiguousarray(block, dtype=self.dtype).reshape(-1).view(np.uint8).data
                    checksums.add(data)
                    file.write(data)
                    n_done += len(block)
                    if time.monotonic() - noted > NOTE_EVERY:
                        self._note(file, n_done=n_done, checksum=zlib.crc32(checksums.table))
                        noted = time.monotonic()
                assert n_done == self.shape[0]
                kept = zlib.compress(json.dumps(description or {}).encode())
                file.write(checksums.table + kept)
                written = int(time.time()) * 10**9  # whole seconds: any file system can hold it
                checksum = zlib.crc32(kept, zlib.crc32(checksums.table))
                self._note(file, checksum=checksum, description_bytes=len(kept), written=written)
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

    def _checksums_hold(self, file: BinaryIO, header: dict[str, Any], blocks: Sequence[int], on_progress: Progress) -> bool:
        """Whether the table, the description and these blocks of the rows are what was written."""
        file.seek(self._end_of_rows)
        tail = file.read()
        if zlib.crc32(tail) != header["checksum"]:
            return False
        table = np.frombuffer(tail, dtype="<u4", count=self.n_blocks)
        for n_read, block in enumerate(blocks, start=1):
            start = HEADER_BYTES + block * BLOCK_BYTES
            file.seek(start)
            if zlib.crc32(file.read(min(BLOCK_BYTES, self._end_of_rows - start))) != table[block]:
                return False
            on_progress(n_read, len(blocks))
        return True

    def _progress(self, part: Path) -> tuple[int, Checksums]:
        """Rows that a killed builder has left, and their checksums; none when they are not what it wrote."""
        try:
            with part.open("rb") as file:
                header = unpacked_header(file.read(HEADER_BYTES))
                if self._describes(header) and "n_done" in header:
                    checksums, left = Checksums(), header["n_done"] * self._row_bytes
                    while data := file.read(min(left, BLOCK_BYTES)):
                        checksums.add(memoryview(data))
                        left -= len(data)
                    if zlib.crc32(checksums.table) == header["checksum"]:
                        return header["n_done"], checksums
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._cannot("read", error) from error
        return 0, Checksums()

    def _note(self, file: BinaryIO, **state: int) -> None:
        file.flush()
        os.fsync(file.fileno())  # the rows must be on disk before the header that counts them
        end = file.tell()
        file.seek(0)
        file.write(packed_header({"key": self.key, "shape": list(self.shape), "dtype": self.dtype, **state}))
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
        """One process at a time; a killed process releases the lock."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path.with_suffix(LOCK))
            try:
                lock.acquire(timeout=0)
            except Timeout:
                Console(stderr=True, soft_wrap=True).print(
                    f"waiting for another process that is preparing {self.path.name}", highlight=False
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


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":  # elsewhere a folder cannot be opened; the rename is atomic all the same
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
