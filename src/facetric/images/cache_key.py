"""What determines the content of a cache: the files it was made from, and the versions of the code that made it.

A cache is found by a hash of these, and keeps them as its `Description`, so that `facetric cache` can tell whether it is current.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import PIL

from facetric.images.decoding import open_image
from facetric.machine import installed_version

PREPARATION = 2  # raise it with every change to decoding or resizing that changes a pixel
ACTIVATIONS = 2  # raise it with every change to crops, views or the frozen part that changes an activation

Versions = dict[str, int | str]


def preparation_versions() -> Versions:
    """What prepared images depend on, besides the files."""
    return {"preparation": PREPARATION, "pillow": PIL.__version__}


def activation_versions() -> Versions:
    """What activations depend on, besides the prepared images, the network and its settings."""
    return {"activations": ACTIVATIONS, "torch": installed_version("torch"), "timm": installed_version("timm")}


def images_key(images: Sequence[Path], size: int) -> str:
    """A hash of what determines the pixels of these files at this size, without reading them.

    A file is known by its absolute path, its size, mtime, ctime and inode. A program can keep or
    set a file's size and mtime, but not its ctime; two files that are swapped keep everything but the inode.
    """
    settings = {"kind": "prepared images", "size": size, **preparation_versions()}
    digest = hashlib.sha256(json.dumps(settings).encode())
    for image in images:
        path = Path(image).absolute()
        try:
            status = path.stat()
        except OSError:
            open_image(path)  # gives a better error message than stat does
            raise
        known = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        digest.update(os.fsencode(path) + f"\0{known}\0".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Description:
    """The description of a cache; kept in its file as JSON."""

    kind: str  # "prepared images" or "activations"
    name: str  # of the dataset; empty for pictures in memory
    detail: str
    versions: Versions  # of the code that determines the content
    source: dict[str, Any] | None  # the files that it was made from: see `described_files`; None for pictures in memory
    made_by: str = field(default_factory=lambda: f"facetric {installed_version('facetric')}")


def described_files(images: Sequence[Path], size: int, key: str) -> dict[str, Any]:
    """Enough to compute `images_key` again, and what it was."""
    return {"files": [str(Path(image).absolute()) for image in images], "size": size, "key": key}
