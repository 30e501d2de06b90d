"""What an image is known by: the hash of its content. That of a file is kept by the file's state, so that it is read once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facetric.images.cache import KEY_BYTES, mapped_array
from facetric.images.decoding import ImageError, open_file
from facetric.machine import made_ahead
from facetric.text import printable


def content_hash(data: bytes) -> bytes:
    """The hash of one file's bytes, 16 bytes."""
    return hashlib.blake2b(data, digest_size=KEY_BYTES).digest()


def content_hashes(images: Sequence[Path] | NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A hash (n, 16) of the content of every image: of the bytes of a file, or of the pixels of an image in memory."""
    if isinstance(images, np.ndarray):
        return _stacked([content_hash(repr(image.shape).encode() + image.tobytes()) for image in images])
    states = _stacked([_state_hash(Path(image)) for image in images])
    with mapped_array(states, "contents", "file hashes", (KEY_BYTES,), "uint8") as kept:
        for found in made_ahead(partial(_file_hash, Path(images[position])) for position in kept.missing):
            kept.write(found)
    return kept.values[kept.rows]


def file_state(path: Path) -> str:
    """Size, times and inode of a file: a program can keep or set size and mtime, but not the ctime. Empty if there is no file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return ""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def _state_hash(path: Path) -> bytes:
    if not (state := file_state(path)):
        with open_file(path):  # an ImageError that says why
            pass
    return content_hash(os.fsencode(path.absolute()) + b"\0" + state.encode())


def _file_hash(path: Path) -> NDArray[np.uint8]:
    try:
        return _stacked([content_hash(path.read_bytes())])
    except OSError as error:
        raise ImageError(f"{printable(path)} cannot be read: {error.strerror}: check its permissions, or remove it") from error


def _stacked(hashes: Sequence[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(len(hashes), KEY_BYTES)
