"""Detect the layout of a dataset and list its contents. Readers refuse what is wrong; a survey records it and continues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from facetric.images.decoding import is_image_file
from facetric.images.readers.annotations import Listing, existing_root, sub_folders
from facetric.images.readers.cars import has_cars_annotations, list_cars
from facetric.images.readers.cars_folders import FIRST_CLASS, class_folders
from facetric.images.readers.class_folders import listing_of, scan_folder
from facetric.images.readers.csv_file import find_csv, has_header, list_csv
from facetric.images.readers.cub import find_cub, list_cub
from facetric.images.readers.products import find_products, list_products


@dataclass(frozen=True)
class Survey:
    """A listing, and what else is in the folder."""

    listing: Listing
    strays: tuple[Path, ...] = ()  # images that belong to no class; they are inspected too
    skipped: tuple[Path, ...] = ()  # what no reader opens
    empty_classes: tuple[str, ...] = ()
    has_classes: bool = True


def survey(path: Path, layout: str) -> Survey:
    """Everything that a layout's files say; ValueError when they cannot be parsed."""
    return LAYOUTS[layout](path)


def detect_layout(path: Path) -> str:
    """The layout by its distinctive files: the official ones first, then a table, then class folders, then plain files."""
    if path.is_file() or _holds_table(path):
        return "csv"
    if _succeeds(find_cub, path):
        return "cub"
    if _succeeds(find_products, path):
        return "products"
    if has_cars_annotations(path) or FIRST_CLASS in class_folders(path):
        return "cars"
    return "folder" if sub_folders(path) else "files"


def _listed(listing: Listing) -> Survey:
    """Also reports unlisted files beside listed images: something was added or renamed."""
    listed = set(listing.paths)
    folders = sorted({path.parent for path in listed})
    inside = (path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir()))
    return Survey(listing, skipped=tuple(p for p in inside if not p.name.startswith(".") and p not in listed and p.is_file()))


def _folder(path: Path) -> Survey:
    scan = scan_folder(existing_root(path, "a folder with one sub-folder per class"))
    empty = tuple(name for name, images in scan.images.items() if not images)
    return Survey(listing_of(scan), scan.strays, scan.others, empty, has_classes=bool(scan.images))


def _files(path: Path) -> Survey:
    """A folder of pictures without classes: not a dataset yet, but its files can be checked."""
    inside = sorted(p for p in existing_root(path, "a folder").iterdir() if not p.name.startswith("."))
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


def _holds_table(path: Path) -> bool:
    try:
        return has_header(find_csv(path)[0])
    except ValueError:
        return False


def _succeeds(find: Callable[[Path], Path], path: Path) -> bool:
    try:
        find(path)
    except ValueError:
        return False
    return True
