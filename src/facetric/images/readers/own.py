"""Your own images: one sub-folder per class, split by class at random, or a table ``path,label[,split]`` as a CSV file.

A table may be clusters.csv of `facetric cluster` with named groups, too.
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from pathlib import Path

import numpy as np

from facetric.images.dataset import SPLITS, ImageDataset
from facetric.images.listing import ClassFolders, list_class_folders, sub_folders
from facetric.images.readers.annotations import UNDECIDED, Listing, existing_root, read_lines
from facetric.text import did_you_mean, name_some, printable

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


def read_csv(
    root: str | os.PathLike[str],
    *,
    file: str | os.PathLike[str] | None = None,
    test_fraction: float | None = None,
    seed: int | None = None,
    shared_classes: bool = False,
) -> ImageDataset:
    """``root`` is the CSV file, or the folder that the paths in it start from; then ``file`` is the CSV file.

    Without ``file``, a folder must hold exactly one CSV file. Paths start from the folder of the CSV file when root is the file.
    A split column says train, validation or test; without one, ``test_fraction`` (a third) of the classes test,
    drawn by ``seed`` (0). A class in two splits is refused unless ``shared_classes`` is true. In a table of `facetric cluster`,
    the names of groups are the labels, and photos without one are left out.
    """
    listing = list_csv(root, file=file)
    if UNDECIDED in listing.splits:
        return listing.dataset().with_test(test_fraction, seed=seed or 0)
    if test_fraction is not None or seed is not None:
        raise ValueError(
            "the CSV file has a split column, so test_fraction and seed do nothing: leave them (data.options.test_fraction and "
            "data.options.seed) out, or remove the column"
        )
    return listing.dataset(shared_classes=shared_classes)


def list_csv(root: str | os.PathLike[str], *, file: str | os.PathLike[str] | None = None) -> Listing:
    """What the table says; class names are the labels in alphabetical order."""
    table, base = find_csv(root, file)
    rows = _rows(table)
    paths = [base / row["path"] for row in rows]
    if repeated := [path for path, n in Counter(paths).items() if n > 1]:
        raise ValueError(
            f"{printable(table)} must list every image once; listed again: {name_some(repeated)}: remove the extra rows"
        )
    class_names = sorted({row["label"] for row in rows})
    label_of = {name: label for label, name in enumerate(class_names)}
    return Listing(
        name="csv",
        paths=tuple(paths),
        labels=np.array([label_of[row["label"]] for row in rows], dtype=np.int64),
        class_names=tuple(class_names),
        splits=np.array([row.get("split", UNDECIDED) for row in rows]),
    )


def find_csv(root: str | os.PathLike[str], file: str | os.PathLike[str] | None = None) -> tuple[Path, Path]:
    """The CSV file, and the folder that its paths start from."""
    path = Path(root).expanduser()
    if not path.exists():
        raise ValueError(
            f"{printable(path)} does not exist: pass the CSV file as root (--root), or the folder of its images and the table as "
            "file (--set data.options.file=path/to/table.csv)"
        )
    if file is not None:
        if not path.is_dir():
            raise ValueError(
                f"{printable(path)} is not a folder: with file (data.options.file), root (--root) is the folder that the paths "
                "in the table start from"
            )
        return Path(file).expanduser(), path
    if path.is_file():
        return path, path.parent
    tables = sorted(p for p in path.iterdir() if p.suffix.lower() == ".csv" and not p.name.startswith("."))
    if len(tables) != 1:
        found = name_some(p.name for p in tables) or "none"
        raise ValueError(
            f"{printable(path)} must hold exactly one CSV file; found {found}: pass the file itself as root (--root), or, if it "
            "is elsewhere, as file (--set data.options.file=path/to/table.csv)"
        )
    return tables[0], path


def has_header(path: Path) -> bool:
    """Whether this is a table with the columns path and label, or one of named groups."""
    try:
        first = next(csv.reader(read_lines(path)[:1]), [])
    except (ValueError, csv.Error):
        return False
    return {"path", "label"} <= set(_header(first)[0])


def _header(first: list[str]) -> tuple[list[str], bool]:
    """The names of the columns, and whether the table is one of groups: there, "name" is the label."""
    header = [name.strip().lower() for name in first]
    of_groups = {"path", "cluster", "medoid"} <= set(header) and "label" not in header
    return ["label" if of_groups and name == "name" else name for name in header], of_groups


def _rows(table: Path) -> list[dict[str, str]]:
    try:
        rows = list(csv.reader(read_lines(table), strict=True))
    except csv.Error as error:
        raise ValueError(f"{printable(table)} is not a CSV file that can be read ({error}): correct it") from None
    header, of_groups = _header(rows[0] if rows else [])
    if of_groups and "label" not in header:
        raise ValueError(
            f"{printable(table)} has no names to train on: name some groups on the page clusters.html, save decisions.json, and "
            "run `facetric cluster … --decisions decisions.json`"
        )
    if not {"path", "label"} <= set(header):
        raise ValueError(
            f"{printable(table)} must start with the line path,label or path,label,split; got {','.join(header)!r}: add it"
        )
    wanted: dict[str, int] = {name: header.index(name) for name in ("path", "label", "split") if name in header}
    found = []
    for number, row in enumerate(rows[1:], start=2):
        if not any(field.strip() for field in row):
            continue
        values = {name: row[column].strip() if column < len(row) else "" for name, column in wanted.items()}
        if of_groups and not values["label"]:
            continue
        if empty := [name for name, value in values.items() if not value]:
            raise ValueError(
                f"{printable(table)}, row {number}: {' and '.join(empty)} must not be empty: fill in or remove the row"
            )
        if "split" in values and values["split"] not in SPLITS:
            raise ValueError(
                f"{printable(table)}, row {number}: split must be one of {', '.join(SPLITS)}; got {values['split']!r}"
                f"{did_you_mean(values['split'], SPLITS)}: correct the row"
            )
        found.append(values)
    if not found:
        raise ValueError(f"{printable(table)} lists no image: add rows below the header")
    return found
