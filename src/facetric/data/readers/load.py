"""Load any dataset by name: load_dataset(name, root)."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

from facetric.data.dataset import ImageDataset
from facetric.data.readers.cars import read_cars
from facetric.data.readers.csv_file import read_csv
from facetric.data.readers.cub import read_cub
from facetric.data.readers.folder import read_folder
from facetric.data.readers.products import read_products
from facetric.spelling import did_you_mean

READERS: dict[str, Callable[..., ImageDataset]] = {
    "cub": read_cub,
    "cars": read_cars,
    "products": read_products,
    "folder": read_folder,
    "csv": read_csv,
}
BUILT_IN = "glyphs"
DATASETS = (*READERS, BUILT_IN)


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
    if name == BUILT_IN:
        if root is not None:
            raise ValueError(f"dataset {name!r} is built in and has no root; got {str(root)!r}: leave root out (--root)")
        from facetric.data.glyphs import load_glyphs

        _refuse_unknown_options(name, load_glyphs, options)
        return load_glyphs(**options)
    reader = READERS[name]
    _refuse_unknown_options(name, reader, options)
    if root is None:
        raise ValueError(f"dataset {name!r} is read from disk: pass root (--root path/to/it)")
    return reader(root, **options)


def _refuse_unknown_options(name: str, reader: Callable[..., ImageDataset], options: dict[str, Any]) -> None:
    parameters = inspect.signature(reader).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            offer = ", ".join(known) or "none"
            raise ValueError(f"dataset {name!r} has no option {option!r}; it has {offer}{did_you_mean(option, known)}")
