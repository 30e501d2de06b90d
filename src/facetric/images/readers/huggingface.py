"""Datasets of Hugging Face: what `save_to_disk` wrote, or .parquet files, with images as bytes and a column of classes.

Images become files in the cache folder, once, as everything else takes files. Nothing of the package `datasets` is run.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from facetric.files import checksummed, pyarrow_modules, read_checksummed, write_atomically
from facetric.images.cache import cache_folder
from facetric.images.dataset import ImageDataset
from facetric.images.decoding import IMAGE_SUFFIXES
from facetric.images.hashing import content_hash
from facetric.images.readers.annotations import UNDECIDED, Listing
from facetric.text import counted, did_you_mean, name_some, printable

_LABELS = ("label", "labels", "class", "fine_label")
_ROWS_AT_ONCE = 256
_STARTS = {b"\xff\xd8\xff": ".jpg", b"\x89PNG": ".png", b"RIFF": ".webp", b"GIF8": ".gif", b"BM": ".bmp"}
_log = logging.getLogger("facetric")


def read_huggingface(
    root: str | os.PathLike[str], *, label: str | None = None, test_fraction: float | None = None, seed: int = 0
) -> ImageDataset:
    """All rows of all splits, which as a rule share their classes; ``test_fraction`` of the classes (a third) test, drawn by
    ``seed``. ``label`` is the column of classes, if several could be it. Rows without a class are left out.
    """
    return list_huggingface(root, label=label).dataset().with_test(test_fraction, seed=seed)


def list_huggingface(root: str | os.PathLike[str], *, label: str | None = None) -> Listing:
    """Every image with its class; no splits."""
    path = Path(root).expanduser()
    found = sorted(path.rglob("*.parquet")) or sorted(path.rglob("*.arrow")) if path.is_dir() else [path]
    files = [file for file in found if not file.name.startswith(("cache-", ".")) and file.is_file()]
    if not files:
        raise ValueError(f"{printable(path)} holds no .parquet or .arrow file: pass the folder that save_to_disk wrote (--root)")
    states = [(os.path.relpath(file, path), (status := file.stat()).st_size, status.st_mtime_ns) for file in files]
    place = cache_folder() / f"huggingface-{content_hash(json.dumps([states, label]).encode()).hex()}"
    names, classes = _unpacked(files, path, place, label)
    class_names = sorted(set(classes))
    code = {name: i for i, name in enumerate(class_names)}
    labels = np.array([code[name] for name in classes], dtype=np.int64)
    paths = tuple(place / name for name in names)  # a name that is absolute stays so
    return Listing("huggingface", paths, labels, tuple(class_names), np.full(len(paths), UNDECIDED))


def _unpacked(files: list[Path], root: Path, place: Path, label: str | None) -> tuple[list[str], list[str]]:
    """The files of the images, below `place`, and their classes. What is listed there was written before."""
    listed = place.with_suffix(".json")
    try:
        record = read_checksummed(listed.read_bytes())
        if set(record["names"]) <= {*os.listdir(place), *filter(os.path.isabs, record["names"])}:
            return record["names"], record["classes"]
    except (OSError, ValueError, LookupError):
        _log.info("unpacking the images of %s into %s, once", printable(root), printable(place))
    place.mkdir(parents=True, exist_ok=True)
    names, classes, n_without = list[str](), list[str](), 0
    for number, file in enumerate(files):
        for row, (image, name) in enumerate(_rows(file, label)):
            data, path = (image or {}).get("bytes"), (image or {}).get("path") or ""
            if name is None or not (data or path):
                n_without += 1
                continue
            classes.append(name)
            if not data:
                names.append(str((root / path).absolute()))
                continue
            suffix = next((found for start, found in _STARTS.items() if data.startswith(start)), Path(path).suffix.lower())
            names.append(f"{number:05}-{row:08}{suffix if suffix in IMAGE_SUFFIXES else '.png'}")
            write_atomically(place / names[-1], data, sync=False)
    if n_without:
        _log.warning("%s without an image or a class left out", counted(n_without, "row"))
    if not names:
        raise ValueError(f"{printable(root)} holds no image with a class: pass another dataset (--root)")
    write_atomically(listed, checksummed({"names": names, "classes": classes}))
    return names, classes


def _rows(file: Path, label: str | None) -> Iterator[tuple[dict[str, Any] | None, str | None]]:
    """Of every row the image, as {bytes, path}, and the name of its class."""
    pyarrow, parquet = pyarrow_modules()
    table: Any
    batches: Any
    try:
        with file.open("rb") as opened:
            if file.suffix == ".parquet":
                table = parquet.ParquetFile(opened)
                schema, batches = table.schema_arrow, lambda columns: table.iter_batches(_ROWS_AT_ONCE, columns=columns)
            else:
                table = pyarrow.ipc.open_stream(opened)
                schema, batches = table.schema, lambda columns: (batch.select(columns) for batch in table)
            image, wanted, names = _columns(schema, file, label)
            for batch in batches([image, wanted]):
                for row, value in zip(batch[image].to_pylist(), batch[wanted].to_pylist(), strict=True):
                    yield row, None if value is None or (names and value < 0) else names[value] if names else str(value)
    except (pyarrow.ArrowException, OSError, IndexError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{printable(file)} cannot be read ({reason}): download or save it again") from None


def _columns(schema: Any, file: Path, label: str | None) -> tuple[str, str, list[str]]:
    """The columns of images and of classes, and the names of the classes where they are numbered."""
    known = json.loads((schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    types = pyarrow_modules()[0].types
    structs = [one.name for one in schema if types.is_struct(one.type) and {"bytes", "path"} <= {x.name for x in one.type}]
    if not structs:
        raise ValueError(f"{printable(file)} has no column of images, with their bytes; it has {name_some(schema.names)}")
    numbered = [name for name in schema.names if known.get(name, {}).get("_type") == "ClassLabel"]
    usual = numbered or [name for name in _LABELS if name in schema.names]
    if label is None and len(usual) != 1:
        among = f"several, {name_some(usual)}" if usual else f"none among {name_some(schema.names)}"
        raise ValueError(
            f"{printable(file)} must have one column of classes; found {among}: name it (--set data.options.label=…)"
        )
    if label is not None and label not in schema.names:
        near = did_you_mean(label, schema.names)
        raise ValueError(f"{printable(file)} has no column {label!r}; it has {name_some(schema.names)}{near}: name one of them")
    wanted = usual[0] if label is None else label
    return structs[0], wanted, known[wanted]["names"] if wanted in numbered else []
