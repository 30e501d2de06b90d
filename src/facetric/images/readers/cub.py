"""CUB-200-2011 (Wah et al., 2011): 200 species of birds; the first 100 are for training, the last 100 for testing."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from facetric.images.dataset import ImageDataset
from facetric.images.readers.annotations import (
    UNDECIDED,
    Listing,
    existing_root,
    first_half_trains,
    label_array,
    name_some,
    read_lines,
    sub_folders,
)
from facetric.text import printable

MARKERS = ("images.txt", "image_class_labels.txt")


def read_cub(root: str | os.PathLike[str], *, check_counts: bool = True) -> ImageDataset:
    """``root`` is the folder CUB_200_2011 or its parent. The official train_test_split.txt is not used: it shares classes."""
    return list_cub(root).dataset(check_counts=check_counts)


def list_cub(root: str | os.PathLike[str]) -> Listing:
    """What images.txt, image_class_labels.txt and classes.txt say."""
    base = find_cub(root)
    class_names = _table(base / "classes.txt")
    images = _table(base / "images.txt")
    classes = _table(base / "image_class_labels.txt")
    if unlabeled := [images[i] for i in images if i not in classes]:
        raise ValueError(
            f"image_class_labels.txt gives no class for {len(unlabeled):,} images of images.txt: {name_some(unlabeled)}: "
            "the two files belong to different copies; unpack the archive again"
        )
    position = {str(class_id): label for label, class_id in enumerate(sorted(class_names))}
    if unknown := sorted({classes[i] for i in images} - set(position)):
        raise ValueError(f"classes.txt has no name for class {name_some(unknown)}: unpack the archive again")
    return first_half_trains(
        Listing(
            name="cub",
            paths=tuple(base / "images" / path for path in images.values()),
            labels=label_array([position[classes[i]] for i in images]),
            class_names=tuple(class_names[class_id] for class_id in sorted(class_names)),
            splits=np.full(len(images), UNDECIDED),
        )
    )


def find_cub(root: str | os.PathLike[str]) -> Path:
    """The folder that holds images.txt: ``root`` or a sub-folder of it."""
    path = existing_root(root, "the folder CUB_200_2011 or its parent")
    for base in (path, *sub_folders(path)):
        if (base / MARKERS[0]).is_file() and (base / MARKERS[1]).is_file():
            return base
    raise ValueError(
        f"{printable(path)} holds no {' and '.join(MARKERS)}, nor does a sub-folder: pass the folder CUB_200_2011 or its parent"
    )


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
