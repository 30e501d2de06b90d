"""The prepared cache: every image decoded and resized once, into one memory-mapped file of bytes that all processes share.

A cache file belongs to one list of images at one size. Its key is a hash of the images' absolute paths, sizes and times of
change (not of their content: that would mean reading them all), of the size and of the versions that decide the pixels.

A file is written under a temporary name, synced, and renamed, one builder at a time: other processes wait for it. What is
found under the final name is trusted after its header and length are checked, and its checksum too when the file has been
touched since it was written (or with `verify=True`). Anything else is rebuilt. Old caches may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import time
import zlib
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from filelock import FileLock, Timeout
from numpy.typing import ArrayLike, NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from facetric.data.images import open_image
from facetric.data.transforms import resized

_MAGIC = b"facetric prepared images 1\n"
_HEADER_BYTES = 4096  # a page, so that pixels are aligned


class PreparedCacheError(OSError):
    """The cache cannot be written; the message says where, why and what to do."""


@dataclass(frozen=True, eq=False)
class PreparedImages:
    """Images of a cache file: image i is ``pixels[rows[i]]``, uint8 (size, size, 3), read from the disk when it is used."""

    path: Path
    pixels: NDArray[np.uint8]  # (n_file, size, size, 3), a read-only memory map
    rows: NDArray[np.int64]  # (n,)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, image_ids: ArrayLike) -> PreparedImages:
        """The images with these positions, in this order, from the same file."""
        return replace(self, rows=self.rows[np.asarray(image_ids)])

    def __reduce__(self) -> tuple[Any, ...]:
        return _mapped, (self.path, self.pixels.shape, self.rows)  # another process maps the file instead of copying it


def prepare(
    images: Sequence[Path],
    *,
    size: int = 256,
    name: str = "images",
    folder: Path | None = None,
    n_workers: int = 2,
    verify: bool = False,
) -> PreparedImages:
    """The images stretched to size × size, from the cache, which is built now if it is missing, damaged or out of date.

    `name` is only for the file's name, `folder` is `cache_folder()` unless given. A file that cannot be decoded stops the build
    with an ImageError that names it; a full disk or an unwritable folder with a PreparedCacheError. Neither leaves anything
    behind. On a terminal a progress bar is shown.
    """
    if len(images) == 0:
        raise ValueError("there are no images to prepare: check the dataset's folder and split")
    if size < 1 or n_workers < 1:
        raise ValueError(f"size and n_workers must be at least 1; got {size} and {n_workers}: 256 and 2 are customary")
    folder = cache_folder() if folder is None else Path(folder)
    key = _key(images, size)
    safe_name = re.sub(r"[^\w-]", "_", name)
    path = folder / f"{safe_name}-{size}-{key[:16]}.bytes"
    shape = (len(images), size, size, 3)
    if not _is_good(path, key, shape, verify=verify):
        with _only_builder(path):
            if not _is_good(path, key, shape, verify=verify):  # unless another process has built it meanwhile
                _build(path, key, images, size, n_workers)
    return _mapped(path, shape, np.arange(len(images)))


def cache_folder() -> Path:
    """$FACETRIC_CACHE, or facetric in the user's cache folder ($XDG_CACHE_HOME, ~/.cache)."""
    if own := os.environ.get("FACETRIC_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "facetric"


def _key(images: Sequence[Path], size: int) -> str:
    digest = hashlib.sha256(json.dumps({"magic": _MAGIC.decode(), "size": size, "pillow": PIL.__version__}).encode())
    for image in images:
        path = Path(image).absolute()
        try:
            status = path.stat()
        except OSError:
            open_image(path)  # says what is wrong with it, better than stat does
            raise
        digest.update(os.fsencode(path) + f"\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _mapped(path: Path, shape: tuple[int, ...], rows: NDArray[np.int64]) -> PreparedImages:
    pixels = np.memmap(path, dtype=np.uint8, mode="r", offset=_HEADER_BYTES, shape=shape)
    return PreparedImages(path, pixels.view(np.ndarray), rows)


def _is_good(path: Path, key: str, shape: tuple[int, ...], *, verify: bool) -> bool:
    """Whether a whole and undamaged cache with this key is there."""
    try:
        with path.open("rb") as file:
            header = _unpacked_header(file.read(_HEADER_BYTES))
            status = os.fstat(file.fileno())
            n_bytes = _HEADER_BYTES + math.prod(shape)
            if header.get("key") != key or header["shape"] != list(shape) or status.st_size != n_bytes:
                return False
            if status.st_mtime_ns == header["written"] and not verify:
                return True
            checksum = 0
            while block := file.read(1 << 22):
                checksum = zlib.crc32(block, checksum)
            if checksum != header["checksum"]:
                return False
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _cannot(path, error, "read") from error
    with suppress(OSError):  # a cache that was copied need not be read through again, if we may say so
        os.utime(path, ns=(header["written"], header["written"]))
    return True


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


@contextmanager
def _only_builder(path: Path) -> Iterator[None]:
    """One process at a time; a killed one lets go, and what it left half-written is removed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_suffix(".lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            Console(stderr=True).print(f"waiting for another process that prepares {path.name}", highlight=False)
            lock.acquire()
    except OSError as error:
        raise _cannot(path, error, "write") from error
    try:
        for leftover in path.parent.glob(f"{path.stem}.*.part"):
            leftover.unlink(missing_ok=True)
        yield
    finally:
        lock.release()


def _build(path: Path, key: str, images: Sequence[Path], size: int, n_workers: int) -> None:
    n_bytes = _HEADER_BYTES + len(images) * size * size * 3
    free = shutil.disk_usage(path.parent).free
    if free < n_bytes:
        raise PreparedCacheError(
            f"the prepared cache of {len(images)} images needs {n_bytes / 1e9:.1f} GB; {path.parent} has {free / 1e9:.1f} GB: "
            "free some space, or set FACETRIC_CACHE to a folder on another disk"
        )
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        with part.open("wb") as file, closing(_decoded(images, size, n_workers, path.name)) as decoded:
            file.write(bytes(_HEADER_BYTES))
            checksum = 0
            for pixels in decoded:
                data = pixels.tobytes()
                checksum = zlib.crc32(data, checksum)
                file.write(data)
            written = int(time.time()) * 10**9  # whole seconds: any file system can hold it
            header = {"key": key, "shape": [len(images), size, size, 3], "checksum": checksum, "written": written}
            file.seek(0)
            file.write(_packed_header(header))
            file.flush()
            os.fsync(file.fileno())
        os.utime(part, ns=(written, written))
        part.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise _cannot(path, error, "write") from error
    finally:
        part.unlink(missing_ok=True)  # after the rename there is nothing to remove


def _decoded(images: Sequence[Path], size: int, n_workers: int, title: str) -> Generator[NDArray[np.uint8], None, None]:
    """The images in order, decoded by threads (Pillow lets go of the interpreter while it works), a few ahead."""
    columns = (TextColumn("preparing {task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    ahead: deque[Future[NDArray[np.uint8]]] = deque()
    pool = ThreadPoolExecutor(n_workers, thread_name_prefix="facetric-prepare")
    try:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task(title, total=len(images))
            for image in images:
                ahead.append(pool.submit(_decode, image, size))
                if len(ahead) > 8 * n_workers:
                    yield ahead.popleft().result()
                    progress.advance(task)
            while ahead:
                yield ahead.popleft().result()
                progress.advance(task)
    finally:
        pool.shutdown(cancel_futures=True)


def _decode(image: Path, size: int) -> NDArray[np.uint8]:
    pixels: NDArray[np.uint8] = resized([open_image(image)], size=size)[0]
    return pixels


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":  # elsewhere a folder cannot be opened; the rename is atomic all the same
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _cannot(path: Path, error: OSError, verb: str) -> PreparedCacheError:
    reason = error.strerror or str(error)
    return PreparedCacheError(
        f"cannot {verb} the prepared cache {path}: {reason}; free some space or change the permissions there, "
        "or set FACETRIC_CACHE to another folder"
    )
