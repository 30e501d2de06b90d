"""Detect the layout of a dataset and list its contents. Readers refuse what is wrong; a survey records it and continues."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from facetric.images.decoding import is_image_file
from facetric.images.listing import list_class_folders, sub_folders, visible
from facetric.images.readers.annotations import Listing, existing_root
from facetric.images.readers.class_folders import WHAT, listing_of
from facetric.images.readers.csv_file import find_csv, has_header, list_csv
from facetric.images.readers.official import find_cub, find_products, has_cars, list_cars, list_cub, list_products


@dataclass(frozen=True)
class Survey:
    """A listing, and what else is in the folder."""

    listing: Listing
    strays: tuple[Path, ...] = ()  # images that belong to no class; they are inspected too
    skipped: tuple[Path, ...] = ()  # what no reader opens
    empty_classes: tuple[str, ...] = ()
    has_classes: bool = True


def detect_layout(path: Path) -> str:
    """The layout by its distinctive files: the official ones first, then a table, then class folders, then plain files."""
    with suppress(ValueError):  # there is not one table
        if path.is_file() or has_header(find_csv(path)[0]):
            return "csv"
    for layout, find in {"cub": find_cub, "products": find_products, "cars": has_cars}.items():
        if find(path):
            return layout
    return "folder" if sub_folders(path) else "files"


def _listed(listing: Listing) -> Survey:
    """Also reports unlisted files beside listed images: something was added or renamed."""
    listed = set(listing.paths)
    folders = sorted({path.parent for path in listed})
    inside = (path for folder in folders if folder.is_dir() for path in visible(folder))
    return Survey(listing, skipped=tuple(p for p in inside if p not in listed and p.is_file()))


def _folder(path: Path) -> Survey:
    found = list_class_folders(existing_root(path, WHAT))
    empty = tuple(name for name, images in found.images.items() if not images)
    return Survey(listing_of(found), found.strays, found.others, empty, has_classes=bool(found.images))


def _files(path: Path) -> Survey:
    """A folder of images without classes: not a dataset yet, but its files can be checked."""
    inside = visible(existing_root(path, "a folder"))
    nothing = Listing("files", (), np.empty(0, dtype=np.int64), (), np.empty(0, dtype="<U8"))
    strays = tuple(p for p in inside if is_image_file(p))
    return Survey(nothing, strays, tuple(p for p in inside if not is_image_file(p)), has_classes=False)


LAYOUTS: dict[str, Callable[[Path], Survey]] = {
    "cub": lambda path: _listed(list_cub(path)),
    "cars": lambda path: _listed(list_cars(path)),
    "products": lambda path: _listed(list_products(path)),
    "folder": _folder,
    "csv": lambda path: Survey(list_csv(path)),
    "files": _files,
}
