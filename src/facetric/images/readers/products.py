"""Stanford Online Products (Song et al., 2016): 22,634 products offered on eBay, with a class-disjoint split of its own."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import numpy as np

from facetric.images.dataset import ImageDataset
from facetric.images.readers.annotations import Listing, existing_root, label_array, read_lines, sub_folders
from facetric.text import printable

FILES = {"train": "Ebay_train.txt", "test": "Ebay_test.txt"}
_HEADER = ["image_id", "class_id", "super_class_id", "path"]


def read_products(root: str | os.PathLike[str], *, check_counts: bool = True) -> ImageDataset:
    """``root`` is the folder Stanford_Online_Products or its parent."""
    return list_products(root).dataset(check_counts=check_counts)


def list_products(root: str | os.PathLike[str]) -> Listing:
    """What Ebay_train.txt and Ebay_test.txt say. A class is named by its super class and its number: ``bicycle 1``."""
    base = find_products(root)
    names: dict[int, str] = {}
    paths: list[Path] = []
    class_ids: list[int] = []
    splits: list[str] = []
    for split, file in FILES.items():
        for class_id, path in _rows(base / file):
            names.setdefault(class_id, f"{PurePosixPath(path).parent.name.removesuffix('_final')} {class_id}")
            paths.append(base / path)
            class_ids.append(class_id)
            splits.append(split)
    label_of = {class_id: label for label, class_id in enumerate(sorted(names))}
    return Listing(
        name="products",
        paths=tuple(paths),
        labels=label_array([label_of[class_id] for class_id in class_ids]),
        class_names=tuple(names[class_id] for class_id in sorted(names)),
        splits=np.array(splits),
    )


def find_products(root: str | os.PathLike[str]) -> Path:
    """The folder that holds Ebay_train.txt: ``root`` or a sub-folder of it."""
    path = existing_root(root, "the folder Stanford_Online_Products or its parent")
    for base in (path, *sub_folders(path)):
        if any((base / file).is_file() for file in FILES.values()):
            return base
    raise ValueError(
        f"{printable(path)} holds no {' and '.join(FILES.values())}, nor does a sub-folder: "
        "pass the folder Stanford_Online_Products or its parent"
    )


def _rows(path: Path) -> list[tuple[int, str]]:
    """Class number and image path of every line below the header."""
    lines = read_lines(path)
    if not lines or lines[0].split() != _HEADER:
        first = lines[0] if lines else ""
        raise ValueError(
            f"{printable(path)} must start with the line {' '.join(_HEADER)!r}; got {first!r}: unpack the archive again"
        )
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        fields = line.split(maxsplit=3)
        if not fields:
            continue
        if len(fields) < 4 or not (fields[1].isascii() and fields[1].isdigit()):
            raise ValueError(f"{printable(path)}, line {number}: expected {' '.join(_HEADER)}, got {line!r}: correct the line")
        rows.append((int(fields[1]), fields[3].strip()))
    if not rows:
        raise ValueError(f"{printable(path)} lists no image: unpack the archive again")
    return rows
