"""The names of the 196 classes of Cars196 in official order: cars_meta.mat, cars_annos.mat or names.csv."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from facetric.data.images import printable
from facetric.data.readers.listing import read_lines, sub_folders


def class_names(root: Path, *, n_classes: int, more: Path | None = None) -> tuple[str, ...]:
    """The official names when a file gives them, "class 001" and so on otherwise."""
    names = listed_names(root)
    if names is None and more is not None:
        names = _names_in(more)
    return names or tuple(f"class {class_id:03d}" for class_id in range(1, n_classes + 1))


def listed_names(*roots: Path) -> tuple[str, ...] | None:
    """Official order from cars_meta.mat (the devkit) or names.csv (it comes with the class folders), if one is there."""
    for root in roots:
        if file := find_beside(root, "cars_meta.mat"):
            if names := _names_in(file):
                return names
            raise ValueError(f"{printable(file)} has no class_names: download it again")
        if file := find_beside(root, "names.csv"):
            rows = [row[0].strip() for row in csv.reader(read_lines(file)) if row and row[0].strip()]
            if not rows or len(set(rows)) < len(rows):
                raise ValueError(f"{printable(file)} must list every class once, in official order: download it again")
            return tuple(rows)
    return None


def find_beside(root: Path, name: str) -> Path | None:
    """A file of the devkit: in root, in a sub-folder, or in a devkit folder of these."""
    for base in (root, *sub_folders(root)):
        for folder in ("", "devkit", "car_devkit/devkit"):
            if (base / folder / name).is_file():
                return base / folder / name
    return None


def read_mat(path: Path) -> dict[str, Any]:
    """A MATLAB file as a dictionary, or a ValueError that names it."""
    from scipy.io import loadmat  # type: ignore[import-untyped]

    try:
        return dict(loadmat(path, squeeze_me=True))
    except Exception as error:  # scipy raises many kinds on damaged files
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{printable(path)} is not a MATLAB file that can be read ({reason}): download it again") from None


def _names_in(path: Path) -> tuple[str, ...] | None:
    names = read_mat(path).get("class_names")
    return None if names is None else tuple(str(name) for name in np.atleast_1d(names))
