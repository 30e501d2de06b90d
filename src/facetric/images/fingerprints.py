"""Content hashes, one per image, so that an image changed after training is noticed.

Hashes of files are kept in the cache folder under the key of the prepared images (paths, sizes, times of change), so that files
are read once, not at every run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facetric.images.array_file import ArrayFile, cache_folder
from facetric.images.cache_key import Description, described_files, images_key
from facetric.images.decoding import ImageError
from facetric.progress import progress_bar
from facetric.text import printable

DIGEST_BYTES = 16
_N_THREADS, _BLOCK = 4, 64


def content_fingerprints(images: Sequence[Path] | NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A hash (n, 16) of the content of every image: of the bytes of a file, or of the pixels of a picture held in memory."""
    if isinstance(images, np.ndarray):
        digests = b"".join(content_digest(repr(picture.shape).encode() + picture.tobytes()) for picture in images)
        return np.frombuffer(digests, dtype=np.uint8).reshape(len(images), DIGEST_BYTES)
    if len(images) == 0:
        return np.empty((0, DIGEST_BYTES), dtype=np.uint8)
    key = images_key(images, size=0)
    file = ArrayFile(
        cache_folder() / f"contents-{key[:16]}.bytes", key, (len(images), DIGEST_BYTES), dtype="uint8", kind="list of file hashes"
    )
    about = Description("file hashes", "", "hashes of the files' content", {}, described_files(images, 0, key))
    file.ensure(lambda: file.write(lambda first: _hashes(images, first), description=asdict(about)))
    return np.array(file.mapped())


def _hashes(images: Sequence[Path], first: int) -> Generator[NDArray[np.uint8], None, None]:
    with (
        ThreadPoolExecutor(_N_THREADS, thread_name_prefix="facetric-hash") as pool,
        progress_bar("reading images", total=len(images), completed=first) as progress,
    ):
        for start in range(first, len(images), _BLOCK):
            some = images[start : start + _BLOCK]
            yield np.frombuffer(b"".join(pool.map(_file_digest, some)), dtype=np.uint8).reshape(len(some), DIGEST_BYTES)
            progress(start + len(some), len(images))


def _file_digest(path: Path) -> bytes:
    try:
        return content_digest(Path(path).read_bytes())
    except OSError as error:
        raise ImageError(f"{printable(path)} cannot be read: {error.strerror}: check its permissions, or remove it") from error


def content_digest(data: bytes) -> bytes:
    """The hash of one file's bytes."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()
