"""From the files of a dataset to an ImageDataset: load_dataset(name, root)."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from facetric.images.dataset import ImageDataset
from facetric.images.glyphs import load_glyphs
from facetric.images.readers.annotations import Listing
from facetric.images.readers.huggingface import list_huggingface, read_huggingface
from facetric.images.readers.official import list_cars, list_cub, list_products
from facetric.images.readers.own import list_csv, list_present, read_csv, read_folder
from facetric.text import did_you_mean

LISTS: dict[str, Callable[..., Listing]] = {
    "cub": list_cub,
    "cars": list_cars,
    "products": list_products,
    "folder": list_present,
    "csv": list_csv,
    "huggingface": list_huggingface,
}
DATASETS = (*LISTS, "glyphs")
_NUMBER, _TEXT, _WHOLE = ((int, float), "a number"), ((str, os.PathLike), "a text"), (int, "a whole number")
_FLAG = (bool, "true or false")
_OPTIONS: dict[str, Any] = {
    "test_fraction": _NUMBER,
    "file": _TEXT,
    "label": _TEXT,
    "check_counts": _FLAG,
    "shared_classes": _FLAG,
}


def load_dataset(name: str, root: str | os.PathLike[str] | None = None, **options: Any) -> ImageDataset:
    """Labeled images with a class-disjoint split.

    * "cub", "cars", "products": the paper's datasets in their official layouts under ``root``, with the paper's split. Their
      published counts are checked; ``check_counts=False`` accepts others.
    * "folder": one sub-folder of ``root`` per class; ``test_fraction`` of the classes are test classes, drawn by ``seed=0``: a
      third of them, and at least two, unless given.
    * "csv": a table ``path,label[,split]``; ``root`` is the file, or the folder its paths start from and ``file`` the table.
      Without a split column, ``test_fraction`` and ``seed`` as for "folder"; ``shared_classes=True`` allows shared classes.
    * "huggingface": what `save_to_disk` of Hugging Face's `datasets` wrote, or a folder of .parquet files with images; ``label``
      is the column of classes. ``test_fraction`` and ``seed`` as for "folder".
    * "glyphs": built in, needs no root.
    """
    reader = _reader(name, root, options)
    return reader(**options) if root is None else reader(root, **options)


def load_present(name: str, root: str | os.PathLike[str] | None = None, **options: Any) -> ImageDataset:
    """As `load_dataset`, without listed images that are gone and classes that have none left, and all in one split.

    It is for a run, which knows its splits and says itself what it misses.
    """
    if name not in LISTS or root is None:
        return load_dataset(name, root, **options)
    _reader(name, root, options)
    return LISTS[name](root, **{option: options[option] for option in options if option in ("file", "label")}).present()


def _reader(name: str, root: str | os.PathLike[str] | None, options: dict[str, Any]) -> Callable[..., ImageDataset]:
    """The function that reads a dataset; a ValueError about what cannot be read so, options and their types included."""
    if name not in DATASETS:
        raise ValueError(f"dataset must be one of {', '.join(DATASETS)}; got {name!r}{did_you_mean(str(name), DATASETS)}")
    if name == "glyphs" and root is not None:
        raise ValueError(f"dataset {name!r} is built in and has no root; got {str(root)!r}: leave root out (--root)")
    if name != "glyphs" and root is None:
        raise ValueError(f"dataset {name!r} is read from disk: pass root (--root path/to/it)")
    own: dict[str, Callable[..., ImageDataset]] = {
        "folder": read_folder,
        "csv": read_csv,
        "huggingface": read_huggingface,
        "glyphs": load_glyphs,
    }
    reader = own.get(name, lambda root, *, check_counts=True: LISTS[name](root).dataset(check_counts=check_counts))
    parameters = inspect.signature(reader).parameters.values()
    defaults = {parameter.name: parameter.default for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
    for option, value in options.items():
        if option not in defaults:
            offer = ", ".join(defaults) or "none"
            raise ValueError(f"dataset {name!r} has no option {option!r}; it has {offer}{did_you_mean(option, defaults)}")
        default, (kind, rule) = defaults[option], _OPTIONS.get(option, _WHOLE)
        fits = isinstance(value, kind) and isinstance(value, bool) == (kind is bool)  # True is no number
        if option == "test_fraction":
            fits = fits and abs(value) <= sys.float_info.max
        if option == "seed" and fits:
            fits, rule = value >= 0, rule + ", 0 or more"
        if not fits and not (value is None is default):
            way_out = "leave it out" if default is None else f"{str(default).lower()} is the default"
            raise ValueError(f"{option} must be {rule}; got {value!r}: {way_out} (--set data.options.{option}=…)")
    return reader
