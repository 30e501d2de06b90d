"""Cars196 (Krause et al., 2013): 196 models of cars in official order; the first 98 train, the last 98 test.

Three layouts are in circulation. The official halves "train" and "test" share all classes, so they are merged:

* devkit: cars_train/ and cars_test/, with cars_train_annos.mat and cars_test_annos_withlabels.mat (cars_meta.mat has the names);
* car_ims: car_ims/ with cars_annos.mat;
* class folders, in cars_folders.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from facetric.images.dataset import ImageDataset
from facetric.images.readers.annotations import UNDECIDED, Listing, existing_root, first_half_trains, label_array, sub_folders
from facetric.images.readers.cars_folders import class_folders, official_order
from facetric.images.readers.cars_names import class_names, find_beside, read_mat
from facetric.text import printable

_HALVES = {"cars_train": "cars_train_annos.mat", "cars_test": "cars_test_annos_withlabels.mat"}
_WHERE = "the folder that holds cars_train and cars_test, car_ims, or one folder per class"


def read_cars(root: str | os.PathLike[str], *, check_counts: bool = True) -> ImageDataset:
    """``root`` is the folder of any of the three layouts, or its parent."""
    return list_cars(root).dataset(check_counts=check_counts)


def list_cars(root: str | os.PathLike[str]) -> Listing:
    """What the annotations, or the class folders, say."""
    path = existing_root(root, _WHERE)
    if (images := _image_folder(path, "car_ims")) and (annotations := find_beside(path, "cars_annos.mat")):
        return _car_ims(path, images, annotations)
    if _image_folder(path, "cars_train") or _image_folder(path, "cars_test"):
        return _devkit(path)
    if folders := class_folders(path):
        names, images_of = official_order(path, folders)
        labels = [label for label, name in enumerate(names) for _ in images_of.get(name, ())]
        return _listing([image for name in names for image in images_of.get(name, ())], labels, names)
    if images:
        raise ValueError(
            f"{printable(images)} holds the images but cars_annos.mat is not beside it: put it into {printable(path)}"
        )
    raise ValueError(f"{printable(path)} holds no known layout of Cars196: pass {_WHERE}")


def has_cars_annotations(path: Path) -> bool:
    """Whether one of the .mat files of Cars196 is here: a certain sign of this dataset."""
    return any(find_beside(path, name) for name in (*_HALVES.values(), "cars_annos.mat", "cars_meta.mat"))


def _car_ims(root: Path, images: Path, annotations: Path) -> Listing:
    rows = _annotations(annotations, "relative_im_path")
    names = class_names(root, n_classes=max(class_id for _, class_id in rows), more=annotations)
    return _listing([images / Path(name).name for name, _ in rows], [class_id - 1 for _, class_id in rows], names)


def _devkit(root: Path) -> Listing:
    paths: list[Path] = []
    labels: list[int] = []
    for half, file in _HALVES.items():
        images, annotations = _image_folder(root, half), find_beside(root, file)
        if images is None:
            raise ValueError(
                f"{printable(root)} holds no folder {half}: both official halves are needed, as the paper merges them"
            )
        if annotations is None:
            raise ValueError(
                f"{file} is not in {printable(root)} nor in its devkit folder: put it there"
                + (" (cars_test_annos.mat of the devkit gives no classes)" if half == "cars_test" else "")
            )
        for name, class_id in _annotations(annotations, "fname"):
            paths.append(images / name)
            labels.append(class_id - 1)
    return _listing(paths, labels, class_names(root, n_classes=max(labels) + 1))


def _listing(paths: list[Path], labels: list[int], names: tuple[str, ...]) -> Listing:
    if max(labels) >= len(names):
        raise ValueError(
            f"the annotations have class {max(labels) + 1} but only {len(names)} names are given: unpack the devkit again"
        )
    return first_half_trains(Listing("cars", tuple(paths), label_array(labels), names, np.full(len(paths), UNDECIDED)))


def _annotations(path: Path, file_field: str) -> list[tuple[str, int]]:
    """File name and class (from 1) of every image."""
    found = read_mat(path)
    if file_field not in found or "class" not in found:
        raise ValueError(f"{printable(path)} has no annotations with {file_field} and class: download it again")
    rows = list(zip(found[file_field], found["class"], strict=True))
    if not rows or min(class_id for _, class_id in rows) < 1:
        raise ValueError(f"{printable(path)} must give every image a class of 1 or more: download it again")
    return rows


def _image_folder(root: Path, name: str) -> Path | None:
    """root/name, also one level deeper, and also doubled (cars_train/cars_train), as some archives unpack."""
    for base in (root, *sub_folders(root)):
        if (base / name).is_dir():
            return base / name / name if (base / name / name).is_dir() else base / name
    return None
