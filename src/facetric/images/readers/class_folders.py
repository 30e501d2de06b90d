"""Your own images: one sub-folder per class, split by class at random."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from facetric.images.dataset import ImageDataset
from facetric.images.decoding import is_image_file
from facetric.images.readers.annotations import (
    UNDECIDED,
    Listing,
    existing_root,
    label_array,
    name_some,
    split_by_fraction,
    sub_folders,
)
from facetric.text import printable


@dataclass(frozen=True)
class FolderScan:
    """The contents of a folder with one sub-folder per class."""

    images: dict[str, tuple[Path, ...]]  # class name → its images, by name; empty for a folder without images
    others: tuple[Path, ...]  # files and folders in the class folders that no reader opens
    strays: tuple[Path, ...]  # images beside the class folders: they have no class


def read_folder(root: str | os.PathLike[str], *, test_fraction: float = 0.5, seed: int = 0) -> ImageDataset:
    """Classes are the sub-folders of ``root``, in order of their names; ``test_fraction`` of them test, drawn by ``seed``."""
    return split_by_fraction(list_folder(root), test_fraction=test_fraction, seed=seed).dataset()


def list_present(root: str | os.PathLike[str]) -> Listing:
    """Every image with its class, of the classes that have images; no splits."""
    return listing_of(scan_folder(existing_root(root, "a folder with one sub-folder per class")))


def list_folder(root: str | os.PathLike[str]) -> Listing:
    """Every image with its class; no splits yet."""
    path = existing_root(root, "a folder with one sub-folder per class")
    scan = scan_folder(path)
    if not scan.images:
        raise ValueError(
            f"{printable(path)} has no sub-folders; found {len(scan.strays):,} images: make one sub-folder per class"
        )
    if empty := [name for name, images in scan.images.items() if not images]:
        way_out = "put images in or remove the folder"
        if deeper := sub_folders(path / empty[0]):
            inside = name_some(p.name for p in deeper)
            way_out = f"if its sub-folders ({inside}) are the classes, pass {printable(path / empty[0])} as root (--root)"
        raise ValueError(
            f"every class folder must hold images; {len(empty):,} of {len(scan.images):,} in {printable(path)} hold none: "
            f"{name_some(empty)}: {way_out}"
        )
    return listing_of(scan)


def listing_of(scan: FolderScan) -> Listing:
    """The images of a scan; classes without images are left out."""
    classes = {name: images for name, images in scan.images.items() if images}
    labels = [label for label, images in enumerate(classes.values()) for _ in images]
    return Listing(
        name="folder",
        paths=tuple(path for images in classes.values() for path in images),
        labels=label_array(labels),
        class_names=tuple(classes),
        splits=np.full(len(labels), UNDECIDED),
    )


def scan_folder(root: Path) -> FolderScan:
    """Look at everything in ``root`` and its sub-folders, hidden files left out."""
    images: dict[str, tuple[Path, ...]] = {}
    others: list[Path] = []
    for folder in sub_folders(root):
        inside = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        images[folder.name] = tuple(path for path in inside if is_image_file(path) and not path.is_dir())
        others += [path for path in inside if not is_image_file(path) or path.is_dir()]
    strays = sorted(path for path in root.iterdir() if is_image_file(path) and not path.is_dir())
    return FolderScan(images, tuple(others), tuple(strays))
