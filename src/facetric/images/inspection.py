"""Inspect image files in parallel: can each be opened, what is its hash, does anything look odd?"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from PIL import Image

from facetric.images.decoding import FORMAT_SUFFIXES, ImageError, decode_image, open_file
from facetric.machine import available_cores
from facetric.progress import Progress
from facetric.text import printable

MIN_SIDE = 16  # pixels; smaller pictures are icons and spacers
MAX_ASPECT = 10.0  # longer side over shorter side
_N_ZEROS = 1024  # that many zero bytes at the end of a JPEG are the unwritten part of an interrupted copy


@dataclass(frozen=True)
class ImageFacts:
    """What was found out about one file."""

    path: Path
    digest: str = ""  # SHA-256 of the file, empty when it cannot be read
    fault: str = ""  # why it cannot be opened, a key of images.WAYS_OUT; empty when it does
    message: str = ""  # the ImageError of the fault
    suspicions: tuple[str, ...] = ()


def inspect_images(
    paths: Sequence[Path], *, n_threads: int | None = None, on_progress: Progress | None = None
) -> Iterator[ImageFacts]:
    """The facts about every file, in order. Decoding releases the GIL, so threads use all cores."""
    executor = ThreadPoolExecutor(n_threads or available_cores())
    try:
        for n_done, facts in enumerate(executor.map(inspect_image, paths), start=1):
            yield facts
            if on_progress is not None:
                on_progress(n_done, len(paths))
    finally:
        executor.shutdown(cancel_futures=True)  # an interrupt need not wait for thousands of files


def inspect_image(path: Path) -> ImageFacts:
    """Decode the whole picture, as training will, so that a file cut short is found wherever it was cut."""
    digest = ""
    try:
        with open_file(path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
            file.seek(0)
            image, format_name = decode_image(file, path)
            return ImageFacts(path, digest, suspicions=tuple(_suspicions(path, file, image, format_name)))
    except ImageError as error:
        return ImageFacts(path, digest, error.fault, str(error))
    except OSError as error:  # a read error of the disk, after the file was opened
        return ImageFacts(path, digest, "unreadable", f"{printable(path)} cannot be read ({error.strerror}): check the disk")


def _suspicions(path: Path, file: IO[bytes], image: Image.Image, format_name: str) -> Iterator[str]:
    short, long = sorted(image.size)
    if short < MIN_SIDE:
        yield f"tiny: {image.width} × {image.height} pixels"
    if long > MAX_ASPECT * short:
        yield f"extreme shape: {image.width} × {image.height} pixels"
    if path.suffix.lower() not in FORMAT_SUFFIXES[format_name]:
        yield f"a {format_name} file with the suffix {path.suffix!r}"
    if image.getcolors(maxcolors=1) is not None:
        yield "every pixel has the same color"
    if format_name == "JPEG" and _ends_in_zeros(file):
        yield "ends in zeros: the lower part may be missing"


def _ends_in_zeros(file: IO[bytes]) -> bool:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _N_ZEROS))
    return size > _N_ZEROS and not any(file.read(_N_ZEROS))
