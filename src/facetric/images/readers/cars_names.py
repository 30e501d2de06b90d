"""The names of the 196 classes of Cars196 in official order: cars_meta.mat, cars_annos.mat or names.csv."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from facetric.images.readers.annotations import read_lines, sub_folders
from facetric.text import printable


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
    """The class names and annotations in a MATLAB file, or a ValueError that names it.

    SciPy's reader can crash on a damaged file, so it runs in a process of its own.
    """
    done = subprocess.run(
        [sys.executable, "-c", _READ_MAT, str(path)], capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    try:
        found = json.loads(done.stdout)
    except ValueError:
        found = {"error": f"the reader stopped with status {done.returncode}"}
    if not isinstance(found, dict) or "error" in found:
        reason = printable(" ".join(str(found.get("error") if isinstance(found, dict) else "no table").split()))
        raise ValueError(f"{printable(path)} is not a MATLAB file that can be read ({reason}): download it again")
    return found


_READ_MAT = """
import json, sys
import numpy as np
try:
    from scipy.io import loadmat
    tables = loadmat(sys.argv[1], squeeze_me=True)
    found = {}
    if "class_names" in tables:
        found["class_names"] = [str(name) for name in np.atleast_1d(tables["class_names"])]
    table = tables.get("annotations")
    if table is not None and table.dtype.names:
        table = np.atleast_1d(table)
        for field in ("fname", "relative_im_path"):
            if field in table.dtype.names:
                found[field] = [str(name) for name in table[field]]
        if "class" in table.dtype.names:
            found["class"] = [int(number) for number in table["class"]]
except BaseException as error:
    found = {"error": str(error) or type(error).__name__}
print(json.dumps(found))
"""


def _names_in(path: Path) -> tuple[str, ...] | None:
    names = read_mat(path).get("class_names")
    return None if names is None else tuple(names)
