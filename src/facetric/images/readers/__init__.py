"""From the files of a dataset to an ImageDataset: load_dataset(name, root)."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from facetric.images.dataset import ImageDataset
from facetric.images.glyphs import load_glyphs
from facetric.images.readers.annotations import Listing
from facetric.images.readers.class_folders import list_present, read_folder
from facetric.images.readers.csv_file import list_csv, read_csv
from facetric.images.readers.official import list_cars, list_cub, list_products
from facetric.text import did_you_mean

__all__ = ["DATASETS", "load_dataset", "load_present"]

_OFFICIAL: dict[str, Callable[..., Listing]] = {"cub": list_cub, "cars": list_cars, "products": list_products}
_PRESENT: dict[str, Callable[..., Listing]] = {**_OFFICIAL, "folder": list_present, "csv": list_csv}
_READERS: dict[str, Callable[..., ImageDataset]] = {"folder": read_folder, "csv": read_csv, "glyphs": load_glyphs}
DATASETS = (*_PRESENT, "glyphs")


def load_dataset(name: str, root: str | os.PathLike[str] | None = None, **options: Any) -> ImageDataset:
    """Labeled images with a class-disjoint split.

    * "cub", "cars", "products": the paper's datasets in their official layouts under ``root``, with the paper's split. Their
      published counts are checked; ``check_counts=False`` accepts others.
    * "folder": one sub-folder of ``root`` per class; ``test_fraction=0.5`` of the classes are test classes, drawn by ``seed=0``.
    * "csv": a table ``path,label[,split]``; ``root`` is the file, or the folder its paths start from and ``file`` the table.
      Without a split column, ``test_fraction`` and ``seed`` as for "folder"; ``shared_classes=True`` allows shared classes.
    * "glyphs": built in, needs no root.
    """
    if name not in DATASETS:
        raise ValueError(f"dataset must be one of {', '.join(DATASETS)}; got {name!r}{did_you_mean(str(name), DATASETS)}")
    if name == "glyphs" and root is not None:
        raise ValueError(f"dataset {name!r} is built in and has no root; got {str(root)!r}: leave root out (--root)")
    reader = _READERS.get(name, _read_official)
    _check_options(name, reader, options)
    if name == "glyphs":
        return load_glyphs(**options)
    if root is None:
        raise ValueError(f"dataset {name!r} is read from disk: pass root (--root path/to/it)")
    return _read_official(root, name, **options) if name in _OFFICIAL else reader(root, **options)


def load_present(name: str, root: str | os.PathLike[str] | None = None, **options: Any) -> ImageDataset:
    """As `load_dataset`, without listed images that are gone and classes that have none left, and all in one split.

    It is for a run, which knows its splits and says itself what it misses.
    """
    if name not in _PRESENT or root is None:
        return load_dataset(name, root, **options)
    _check_options(name, _READERS.get(name, _read_official), options)
    where = {"file": options["file"]} if "file" in options else {}
    return _PRESENT[name](root, **where).present()


def _read_official(root: str | os.PathLike[str], name: str, *, check_counts: bool = True) -> ImageDataset:
    return _OFFICIAL[name](root).dataset(check_counts=check_counts)


def _check_options(name: str, reader: Callable[..., ImageDataset], options: dict[str, Any]) -> None:
    """Refuse options that the reader does not have, and values of another type than it takes."""
    parameters = inspect.signature(reader).parameters
    known = [parameter.name for parameter in parameters.values() if parameter.kind is parameter.KEYWORD_ONLY]
    types = get_type_hints(reader)
    for option, value in options.items():
        if option not in known:
            offer = ", ".join(known) or "none"
            raise ValueError(f"dataset {name!r} has no option {option!r}; it has {offer}{did_you_mean(option, known)}")
        fits = _is_of(value, types[option])
        if not fits or (option == "seed" and value is not None and value < 0):
            default = parameters[option].default
            way_out = "leave it out" if default is None else f"{str(default).lower()} is the default"
            rule = _in_words(types[option]) + (", 0 or more" if fits else "")
            raise ValueError(f"{option} must be {rule}; got {value!r}: {way_out} (--set data.options.{option}=…)")


def _is_of(value: Any, kind: Any) -> bool:
    """Whether a value is of a type, or of one of several; an integer is a number, True is not."""
    if get_origin(kind) is UnionType:
        return any(_is_of(value, one) for one in get_args(kind))
    kind = get_origin(kind) or kind
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if kind is float:
        return isinstance(value, int | float) and abs(value) <= sys.float_info.max
    return isinstance(value, kind)


def _in_words(kind: Any) -> str:
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    return next(words[one] for one in (kind, *get_args(kind)) if one in words)
