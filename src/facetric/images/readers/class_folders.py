"""Your own images: one sub-folder per class, split by class at random."""

from __future__ import annotations

import os

import numpy as np

from facetric.images.dataset import ImageDataset
from facetric.images.listing import ClassFolders, list_class_folders, sub_folders
from facetric.images.readers.annotations import UNDECIDED, Listing, existing_root
from facetric.text import name_some, printable

WHAT = "a folder with one sub-folder per class"


def read_folder(root: str | os.PathLike[str], *, test_fraction: float | None = None, seed: int = 0) -> ImageDataset:
    """Classes are the sub-folders of ``root``, by name; ``test_fraction`` of them (a third) test, drawn by ``seed``."""
    path = existing_root(root, WHAT)
    found = list_class_folders(path)
    if not found.images:
        raise ValueError(
            f"{printable(path)} has no sub-folders; found {len(found.strays):,} images: make one sub-folder per class"
        )
    if empty := [name for name, images in found.images.items() if not images]:
        way_out = "put images in or remove the folder"
        if deeper := sub_folders(path / empty[0]):
            inside = name_some(p.name for p in deeper)
            way_out = f"if its sub-folders ({inside}) are the classes, pass {printable(path / empty[0])} as root (--root)"
        raise ValueError(
            f"every class folder must hold images; {len(empty):,} of {len(found.images):,} in {printable(path)} hold none: "
            f"{name_some(empty)}: {way_out}"
        )
    return listing_of(found).dataset().with_test(test_fraction, seed=seed)


def list_present(root: str | os.PathLike[str]) -> Listing:
    """Every image with its class, of the classes that have images; no splits."""
    return listing_of(list_class_folders(existing_root(root, WHAT)))


def listing_of(found: ClassFolders) -> Listing:
    """The images of class folders; classes without images are left out."""
    classes = {name: images for name, images in found.images.items() if images}
    labels = np.repeat(np.arange(len(classes)), [len(images) for images in classes.values()])
    paths = tuple(path for images in classes.values() for path in images)
    return Listing("folder", paths, labels, tuple(classes), np.full(len(paths), UNDECIDED), is_from_disk=True)
