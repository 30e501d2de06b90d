"""The paper's datasets as their authors publish them.

* CUB-200-2011 (Wah et al., 2011): 200 species of birds; the first 100 train, the last 100 test. The official
  train_test_split.txt is not used: it shares classes.
* Cars196 (Krause et al., 2013): 196 models of cars in official order; the first 98 train, the last 98 test. The official halves
  share all classes, so they are merged: cars_train/ and cars_test/ with cars_train_annos.mat and cars_test_annos_withlabels.mat
  (cars_meta.mat has the names), or car_ims/ with cars_annos.mat.
* Stanford Online Products (Song et al., 2016): 22,634 products offered on eBay, with a class-disjoint split of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from facetric.images.listing import sub_folders
from facetric.images.readers.annotations import Listing, existing_root, read_lines
from facetric.text import name_some, printable

CUB_FILES = ("images.txt", "image_class_labels.txt")
PRODUCTS_FILES = {"train": "Ebay_train.txt", "test": "Ebay_test.txt"}
_PRODUCTS_HEADER = ["image_id", "class_id", "super_class_id", "path"]
_CARS_HALVES = {"cars_train": "cars_train_annos.mat", "cars_test": "cars_test_annos_withlabels.mat"}
_CARS = "the folder that holds cars_train and cars_test, or car_ims, with their .mat files"


def list_cub(root: str | os.PathLike[str]) -> Listing:
    """What images.txt, image_class_labels.txt and classes.txt say; `root` is the folder CUB_200_2011 or its parent."""
    what = "the folder CUB_200_2011 or its parent"
    path = existing_root(root, what)
    if (base := find_cub(path)) is None:
        raise ValueError(f"{printable(path)} holds no {' and '.join(CUB_FILES)}, nor does a sub-folder: pass {what}")
    class_names, images, classes = (_table(base / file) for file in ("classes.txt", *CUB_FILES))
    if unlabeled := [images[i] for i in images if i not in classes]:
        raise ValueError(
            f"image_class_labels.txt gives no class for {len(unlabeled):,} images of images.txt: {name_some(unlabeled)}: "
            "the two files belong to different copies; unpack the archive again"
        )
    position = {str(class_id): label for label, class_id in enumerate(sorted(class_names))}
    if unknown := sorted({classes[i] for i in images} - set(position)):
        raise ValueError(f"classes.txt has no name for class {name_some(unknown)}: unpack the archive again")
    paths = tuple(base / "images" / path for path in images.values())
    labels = np.array([position[classes[i]] for i in images], dtype=np.int64)
    names = tuple(class_names[class_id] for class_id in sorted(class_names))
    return Listing("cub", paths, labels, names, np.where(labels < len(names) // 2, "train", "test"))


def find_cub(path: Path) -> Path | None:
    """The folder that holds images.txt: `path` or a sub-folder of it."""
    return next((base for base in _around(path) if all((base / file).is_file() for file in CUB_FILES)), None)


def _table(path: Path) -> dict[int, str]:
    """Lines of a number and a text, in order of the file."""
    table: dict[int, str] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        key, _, value = line.strip().partition(" ")
        if not (key.isascii() and key.isdigit() and value.strip()):
            raise ValueError(f"{printable(path)}, line {number}: expected a number and a text, got {line!r}: correct the line")
        if int(key) in table:
            raise ValueError(f"{printable(path)}, line {number}: number {key} appears twice: remove one of the lines")
        table[int(key)] = value.strip()
    if not table:
        raise ValueError(f"{printable(path)} is empty: unpack the archive again")
    return table


def list_products(root: str | os.PathLike[str]) -> Listing:
    """What Ebay_train.txt and Ebay_test.txt say. A class is named by its super class and its number: ``bicycle 1``."""
    what = "the folder Stanford_Online_Products or its parent"
    path = existing_root(root, what)
    if (base := find_products(path)) is None:
        files = " and ".join(PRODUCTS_FILES.values())
        raise ValueError(f"{printable(path)} holds no {files}, nor does a sub-folder: pass {what}")
    rows = [(split, class_id, image) for split, file in PRODUCTS_FILES.items() for class_id, image in _products(base / file)]
    names: dict[int, str] = {}
    for _, class_id, image in rows:
        names.setdefault(class_id, f"{PurePosixPath(image).parent.name.removesuffix('_final')} {class_id}")
    label_of = {class_id: label for label, class_id in enumerate(sorted(names))}
    return Listing(
        name="products",
        paths=tuple(base / image for _, _, image in rows),
        labels=np.array([label_of[class_id] for _, class_id, _ in rows], dtype=np.int64),
        class_names=tuple(names[class_id] for class_id in sorted(names)),
        splits=np.array([split for split, _, _ in rows]),
    )


def find_products(path: Path) -> Path | None:
    """The folder that holds Ebay_train.txt: `path` or a sub-folder of it."""
    return next((base for base in _around(path) if any((base / file).is_file() for file in PRODUCTS_FILES.values())), None)


def _products(path: Path) -> list[tuple[int, str]]:
    """Class number and image path of every line below the header."""
    lines = read_lines(path)
    if not lines or lines[0].split() != _PRODUCTS_HEADER:
        first = lines[0] if lines else ""
        raise ValueError(
            f"{printable(path)} must start with the line {' '.join(_PRODUCTS_HEADER)!r}; got {first!r}: unpack the archive again"
        )
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        fields = line.split(maxsplit=3)
        if not fields:
            continue
        if len(fields) < 4 or not (fields[1].isascii() and fields[1].isdigit()):
            wanted = " ".join(_PRODUCTS_HEADER)
            raise ValueError(f"{printable(path)}, line {number}: expected {wanted}, got {line!r}: correct the line")
        rows.append((int(fields[1]), fields[3].strip()))
    if not rows:
        raise ValueError(f"{printable(path)} lists no image: unpack the archive again")
    return rows


def list_cars(root: str | os.PathLike[str]) -> Listing:
    """What the annotations say; `root` is the folder of either layout, or its parent."""
    path = existing_root(root, _CARS)
    if (images := _images_of_cars(path, "car_ims")) is not None:
        if (more := _beside(path, "cars_annos.mat")) is None:
            raise ValueError(
                f"{printable(images)} holds the images but cars_annos.mat is not beside it: put it into {printable(path)}"
            )
        halves = [(images, more, "relative_im_path")]
    elif _images_of_cars(path, "cars_train") or _images_of_cars(path, "cars_test"):
        halves, more = [_half_of_cars(path, half) for half in _CARS_HALVES], None
    else:
        raise ValueError(
            f"{printable(path)} holds no known layout of Cars196: pass {_CARS}; class folders are read with --data folder"
        )
    found = ((folder, row) for folder, table, field in halves for row in _annotations(table, field))
    rows = [(folder / Path(name).name, class_id) for folder, (name, class_id) in found]
    labels = np.array([class_id - 1 for _, class_id in rows], dtype=np.int64)
    n_classes = int(labels.max()) + 1
    names = _car_names(path, more) or tuple(f"class {class_id:03d}" for class_id in range(1, n_classes + 1))
    if n_classes > len(names):
        raise ValueError(f"the annotations have class {n_classes} but only {len(names)} names are given: unpack the devkit again")
    return Listing("cars", tuple(path for path, _ in rows), labels, names, np.where(labels < len(names) // 2, "train", "test"))


def has_cars(path: Path) -> bool:
    """Whether one of the .mat files of Cars196 is here: a certain sign of this dataset."""
    return any(_beside(path, name) for name in (*_CARS_HALVES.values(), "cars_annos.mat", "cars_meta.mat"))


def _half_of_cars(root: Path, half: str) -> tuple[Path, Path, str]:
    images, annotations = _images_of_cars(root, half), _beside(root, _CARS_HALVES[half])
    if images is None:
        raise ValueError(f"{printable(root)} holds no folder {half}: both official halves are needed, as the paper merges them")
    if annotations is None:
        raise ValueError(
            f"{_CARS_HALVES[half]} is not in {printable(root)} nor in its devkit folder: put it there"
            + (" (cars_test_annos.mat of the devkit gives no classes)" if half == "cars_test" else "")
        )
    return images, annotations, "fname"


def _images_of_cars(root: Path, name: str) -> Path | None:
    """root/name, also one level deeper, and also doubled (cars_train/cars_train), as some archives unpack."""
    found = next((base / name for base in _around(root) if (base / name).is_dir()), None)
    return found / name if found is not None and (found / name).is_dir() else found


def _car_names(root: Path, more: Path | None) -> tuple[str, ...] | None:
    """The names in official order, when a file gives them."""
    if file := _beside(root, "cars_meta.mat"):
        if names := _read_mat(file).get("class_names"):
            return tuple(names)
        raise ValueError(f"{printable(file)} has no class_names: download it again")
    return tuple(_read_mat(more).get("class_names", ())) or None if more else None


def _annotations(path: Path, file_field: str) -> list[tuple[str, int]]:
    """File name and class (from 1) of every image."""
    found = _read_mat(path)
    if file_field not in found or "class" not in found:
        raise ValueError(f"{printable(path)} has no annotations with {file_field} and class: download it again")
    rows = list(zip(found[file_field], found["class"], strict=True))
    if not rows or min(class_id for _, class_id in rows) < 1:
        raise ValueError(f"{printable(path)} must give every image a class of 1 or more: download it again")
    return rows


def _around(root: Path) -> list[Path]:
    return [root, *sub_folders(root)]


def _beside(root: Path, name: str) -> Path | None:
    """A file of the devkit: in root, in a sub-folder, or in a devkit folder of these."""
    places = (base / folder / name for base in _around(root) for folder in ("", "devkit", "car_devkit/devkit"))
    return next((place for place in places if place.is_file()), None)


def _read_mat(path: Path) -> dict[str, Any]:
    """The class names and annotations in a MATLAB file, or a ValueError that names it.

    SciPy's reader can crash on a damaged file, so it runs in a process of its own.
    """
    done = subprocess.run(
        [sys.executable, "-c", _READ_MAT, str(path)], capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode:
        said = done.stderr.splitlines() if done.returncode == 1 else []  # of Python: its last line is the error
        reason = printable(said[-1] if said else f"the reader stopped with status {done.returncode}")
        raise ValueError(f"{printable(path)} is not a MATLAB file that can be read ({reason}): download it again")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


_READ_MAT = """
import json, sys
import numpy as np
from scipy.io import loadmat
tables = loadmat(sys.argv[1], squeeze_me=True)
columns = {"class_names": tables["class_names"]} if "class_names" in tables else {}
table = tables.get("annotations")
if table is not None and table.dtype.names:
    columns |= {name: table[name] for name in ("fname", "relative_im_path", "class") if name in table.dtype.names}
kinds = {"class": int}
print(json.dumps({name: [kinds.get(name, str)(value) for value in np.atleast_1d(column)] for name, column in columns.items()}))
"""
