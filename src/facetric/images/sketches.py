"""What photos are compared by when copies are searched: a small gray picture, coarse colors, a perceptual hash.

The hash is the sign pattern of the 99 lowest frequencies of the gray picture (a pHash of 10 × 10 coefficients without the mean).
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.fft import dctn  # type: ignore[import-untyped]

from facetric.images.decoding import ImageError, decode_image, known_formats, open_file
from facetric.images.hashing import content_hash
from facetric.images.listing import PhotoList, Problem
from facetric.machine import available_cores
from facetric.progress import Progress
from facetric.text import printable

SIDE = 32  # of the gray picture
COLOR_SIDE = 4  # of the two color channels
FREQUENCIES = 10
_DECODED = 128  # a JPEG is decoded at no less than this


@dataclass(frozen=True, eq=False)
class Sketch:
    """One photo."""

    path: Path  # relative to the root of its list
    content: bytes  # the hash of its file
    width: int
    height: int
    n_bytes: int
    gray: NDArray[np.uint8]  # (32, 32)
    colors: NDArray[np.uint8]  # (4, 4, 2), Cb and Cr


def read_sketches(listed: PhotoList, *, on_progress: Progress | None = None) -> tuple[list[Sketch], list[Problem]]:
    """Every photo of a list that can be opened, in order, and those that cannot; threads decode."""
    sketches: list[Sketch] = []
    problems = list(listed.problems)
    pool = ThreadPoolExecutor(available_cores(), thread_name_prefix="facetric-sketch")
    try:
        for n_done, found in enumerate(pool.map(lambda photo: _sketch(listed.root, photo), listed.photos), start=1):
            if isinstance(found, Sketch):
                sketches.append(found)
            else:
                problems.append(found)
            if on_progress is not None:
                on_progress(n_done, len(listed.photos))
    finally:
        pool.shutdown(cancel_futures=True)
    return sketches, problems


def _sketch(root: Path, photo: Path) -> Sketch | Problem:
    path = root / photo
    try:
        with open_file(path) as file:
            data = file.read()
        image, _ = decode_image(io.BytesIO(data), path, at_least=_DECODED)
        with Image.open(io.BytesIO(data), formats=known_formats()) as header:
            width, height = header.size
    except ImageError as error:
        return Problem(photo, str(error))
    except OSError as error:  # a read error of the disk
        return Problem(photo, f"{printable(path)} cannot be read ({error.strerror}): check the disk")
    return Sketch(photo, content_hash(data), width, height, len(data), *drawn(image))


def drawn(image: Image.Image) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The gray picture and the colors of an upright RGB picture."""
    small = image.resize((SIDE, SIDE), Image.Resampling.BOX).convert("YCbCr")
    gray = np.asarray(small.getchannel("Y"))
    colors = np.asarray(small.resize((COLOR_SIDE, COLOR_SIDE), Image.Resampling.BOX))[:, :, 1:]
    return gray, np.ascontiguousarray(colors)


def hash_codes(grays: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Perceptual hashes (n, 2) of gray pictures (n, 32, 32): bit = coefficient above the median of its picture."""
    frequencies = dctn(grays.astype(np.float32), axes=(1, 2))[:, :FREQUENCIES, :FREQUENCIES].reshape(len(grays), -1)[:, 1:]
    bits = frequencies > np.median(frequencies, axis=1, keepdims=True)
    padded = np.zeros((len(grays), 128), dtype=np.bool_)
    padded[:, : bits.shape[1]] = bits
    return np.packbits(padded, axis=1).view(np.uint64)


def stacked(sketches: Sequence[Sketch]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """All gray pictures (n, 32, 32) and colors (n, 4, 4, 2)."""
    grays = np.empty((len(sketches), SIDE, SIDE), dtype=np.uint8)
    colors = np.empty((len(sketches), COLOR_SIDE, COLOR_SIDE, 2), dtype=np.uint8)
    for i, sketch in enumerate(sketches):
        grays[i], colors[i] = sketch.gray, sketch.colors
    return grays, colors
