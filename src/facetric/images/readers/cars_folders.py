"""Cars196 as class folders, optionally under train/ and test/: which class is which number?

The official order is by make, but within a make it is not alphabetical, and folders carry only names. In order of trust:

1. cars_meta.mat or names.csv beside the folders gives the order ("Ram C/V ..." may be written "Ram C-V ..." on disk).
2. Folder names that start with the numbers 1 … n (or 0 … n − 1) give the order.
3. Image numbers as in car_ims (000001.jpg … 016185.jpg) run through the classes one after the other, so classes are in order of
   their smallest number. The numbers of cars_train/ and cars_test/ do not: their classes overlap, and are not used.
4. All 196 names without any of these still give the paper's *split*: class 98 is the Eagle Talon and class 99 the FIAT 500
   Abarth, so makes from A to E train and makes from F on test. Labels are then alphabetical within each half; no score sees this.
"""

from __future__ import annotations

import os
import re
from itertools import pairwise
from pathlib import Path

from facetric.images.decoding import is_image_file
from facetric.images.readers.annotations import name_some, sub_folders
from facetric.images.readers.cars_names import listed_names
from facetric.text import printable

FIRST_CLASS = "AM General Hummer SUV 2000"
_N_CLASSES, _N_TRAIN_CLASSES = 196, 98

ImagesByClass = dict[str, list[Path]]  # class name → its images, by path


def class_folders(root: Path) -> ImagesByClass:
    """Folders with images under root, root/train and root/test, or one or two levels deeper (car_data/car_data/train)."""
    level = [root]
    for _ in range(3):
        for base in level:
            halves = [base / half for half in ("train", "test") if (base / half).is_dir()]
            found: ImagesByClass = {}
            for half in halves or [base]:
                for folder in sub_folders(half):
                    if images := _images(folder):
                        found.setdefault(folder.name, []).extend(images)
            if len(found) > 1:
                return found
        level = [folder for base in level for folder in sub_folders(base)]
    return {}


def official_order(root: Path, folders: ImagesByClass) -> tuple[tuple[str, ...], ImagesByClass]:
    """Class names in official order, and the images under these names."""
    base = Path(os.path.commonpath([images[0].parent for images in folders.values()]))
    if names := listed_names(root, base):
        return names, _under_listed_names(names, folders)
    for order in (_by_folder_number, _by_image_number, _by_make):
        if ordered := order(folders):
            return tuple(ordered), folders
    raise ValueError(
        f"the official order of the {len(folders)} classes in {printable(root)} cannot be known from their folders: "
        "put cars_meta.mat (from the devkit) or names.csv (196 lines, from the archive with the class folders) beside them"
    )


def _under_listed_names(names: tuple[str, ...], folders: ImagesByClass) -> ImagesByClass:
    official = {_key(name): name for name in names}
    if unknown := [folder for folder in folders if _key(folder) not in official]:
        raise ValueError(
            f"{len(unknown)} class folders are not in the list of {len(names)} official names: {name_some(unknown)}: "
            "rename or remove them"
        )
    return {official[_key(folder)]: images for folder, images in folders.items()}


def _by_folder_number(folders: ImagesByClass) -> list[str] | None:
    numbers = {name: int(match[0]) for name in folders if (match := re.match(r"\d+(?![^\W_])", name))}
    counted = sorted(numbers.values())
    if len(numbers) < len(folders) or counted not in ([*range(len(folders))], [*range(1, len(folders) + 1)]):
        return None
    return sorted(folders, key=numbers.__getitem__)


def _by_image_number(folders: ImagesByClass) -> list[str] | None:
    spans = []
    for name, images in folders.items():
        if not all(re.fullmatch(r"[0-9]+", image.stem) for image in images):
            return None
        numbers = [int(image.stem) for image in images]
        spans.append((min(numbers), max(numbers), name))
    spans.sort()
    overlap = any(before[1] >= after[0] for before, after in pairwise(spans))
    return None if overlap else [name for _, _, name in spans]


def _by_make(folders: ImagesByClass) -> list[str] | None:
    n_train = sum(name.casefold() < "f" for name in folders)
    return sorted(folders) if (len(folders), n_train) == (_N_CLASSES, _N_TRAIN_CLASSES) else None


def _key(name: str) -> str:
    """Letters and digits only: folders cannot carry the slash of "C/V", and archives replace it in several ways."""
    return re.sub(r"[\W_]+", "", name).casefold()


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if is_image_file(path) and not path.is_dir())
