"""Vectors that other programs made: arrays, .npy, .npz and .parquet files of any origin as `Vectors`. Nothing is unpickled."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facetric.embedder.embedder import Embedder
from facetric.embedder.vectors_file import Vectors
from facetric.files import pyarrow_modules
from facetric.images import Preprocessing
from facetric.text import did_you_mean, name_some, printable

SUFFIXES = (".npy", ".npz", ".parquet", ".csv")
_USUAL = {  # what columns are called elsewhere, the first that is there is taken
    "vectors": ("vectors", "vector", "embeddings", "embedding"),
    "names": ("names", "name", "path", "paths", "text", "texts"),
    "labels": ("labels", "label", "class"),
    "hashes": ("content",),
    "model": ("model",),
}
_Columns = Mapping[str, Callable[[], Any]]  # each is read when it is called


def read_vectors(path: str | os.PathLike[str], *, names: str | None = None, labels: str | None = None) -> Vectors:
    """The vectors in a file: of `facetric embed`, or a .npy, .npz or .parquet file that another program wrote.

    A .npy file is one array (n, dim), whose rows are called #0, #1, …. In the others vectors are the column (or array) `vectors`
    or `embedding`, names `name`, `path` or `text`, labels `label`; `names` and `labels` name other columns.
    """
    file = Path(path).expanduser()
    suffix, where = file.suffix.lower(), printable(file)
    if suffix not in SUFFIXES:
        raise ValueError(f"vectors are read from .npy, .npz and .parquet files; got {where}: save them as one of these")
    if not file.is_file():
        raise ValueError(f"{where} {'is a folder' if file.exists() else 'does not exist'}: pass a file of vectors")
    if suffix == ".csv":
        found = Vectors.load(file)
        if names is not None or labels is not None:
            raise ValueError(f"{where} has the columns of `facetric embed` only: leave names= and labels= out, or pass .parquet")
        return replace(found, source={"file": file.name})
    with file.open("rb") as opened:
        with _damaged(where):
            columns, is_ours = _COLUMNS[suffix](opened)
        if is_ours and names is None and labels is None:
            known = Vectors.load(file)
            return replace(given_vectors(known, where=where), source={**known.source, "file": file.name})
        chosen = {
            "vectors": _column(columns, "vectors", None, where),
            "names": _column(columns, "names", names, where),
            "labels": _column(columns, "labels", labels, where),
            "hashes": _column(columns, "hashes", None, where),
            "model": _column(columns, "model", None, where),
        }
        if chosen["vectors"] is None and suffix == ".npz" and len(columns) == 1:
            chosen["vectors"] = next(iter(columns))
        if chosen["vectors"] is None:
            raise ValueError(f"{where} has no column vectors or embedding; it has {name_some(columns)}: rename one of them")
        with _damaged(where):
            read = {what: np.asarray(columns[name]()) for what, name in chosen.items() if name is not None}
    models = set(np.atleast_1d(read.pop("model", np.array(""))).tolist())
    if len(models) != 1:
        raise ValueError(f"{where} holds vectors of {len(models):,} models, which cannot be compared: write one file for each")
    hashes = read.pop("hashes", np.empty(0))
    found = given_vectors(read["vectors"], names=read.get("names"), labels=read.get("labels"), where=where)
    return replace(found, hashes=tuple(map(str, hashes.tolist())), model=str(models.pop()), source={"file": file.name})


def given_vectors(
    vectors: ArrayLike | Vectors,
    *,
    names: Sequence[str] | NDArray[Any] | None = None,
    labels: Sequence[str] | Sequence[int] | NDArray[Any] | None = None,
    where: str = "the array",
) -> Vectors:
    """An array (n, dim) as `Vectors`, checked: finite numbers, no row of zeros; #0, #1, … without names."""
    if isinstance(vectors, Vectors):
        if names is not None or labels is not None:
            raise ValueError("Vectors have names and labels of their own: leave names= and labels= out")
        vectors, names, labels = (found := vectors).vectors, found.names, found.labels if len(found.labels) else None
        checked = given_vectors(vectors, names=names, labels=labels, where=where)
        return replace(checked, hashes=found.hashes, model=found.model, source=found.source)
    array = np.asarray(vectors)
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "fiu":
        raise ValueError(
            f"vectors are numbers of shape (n, dim); {where} holds {array.dtype} of shape {array.shape}: save one row for each"
        )
    with np.errstate(over="ignore"):
        rows: NDArray[np.float32] = np.ascontiguousarray(array, dtype=np.float32)
    for fault, is_bad in (("NaN or infinity", ~np.isfinite(rows).all(axis=1)), ("zeros only", ~rows.any(axis=1))):
        if is_bad.any():
            n_others = int(is_bad.sum()) - 1
            others = f" (and {n_others:,} more)" if n_others else ""
            raise ValueError(
                f"vectors are compared by their direction; row {int(is_bad.argmax())} of {where} holds {fault}{others}: make it "
                "again, or leave such rows out"
            )
    called = [f"#{row}" for row in range(len(rows))] if names is None else [_text(name) for name in list(names)]
    classes = np.empty(0, dtype=np.int64) if labels is None else np.asarray(labels)
    if classes.dtype.kind not in "iu" and len(classes):
        classes = np.array([_text(label) for label in classes.tolist()])
    for what, values in (("names", called), ("labels", classes)):
        if len(values) != len(rows) and (what == "names" or labels is not None):
            raise ValueError(f"{where} has {len(rows):,} vectors and {len(values):,} {what}: pass one for each ({what}=)")
    return Vectors(rows, tuple(called), classes)


class Elsewhere(Embedder):
    """Stands for a model that is not here, of which there are vectors only: no image can be embedded."""

    def __init__(self, fingerprint: str, dim: int, name: str) -> None:
        self.fingerprint, self.dim, self.name = fingerprint, dim, name
        self.pair_model, self.fitted_to = None, ""
        self.run = ""  # not that of the packaged network, None
        self.file = self.origin = None
        self.preprocessing = Preprocessing()

    def prepare(self, n_images: int) -> None:
        """There is nothing to choose."""

    def encode(self, images: Any, **options: Any) -> NDArray[np.float32]:
        raise ValueError(f"{self.name} is not here to embed images with, only vectors of it are: pass its vectors")


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value)


def _column(columns: _Columns, what: str, wanted: str | None, where: str) -> str | None:
    """The name of the column that is wanted, or has one of the usual names."""
    if wanted is None:
        return next((name for name in _USUAL[what] if name in columns), None)
    if wanted not in columns:
        near = did_you_mean(wanted, columns)
        raise ValueError(f"{where} has no column {wanted!r}; it has {name_some(columns)}{near}: name one of them ({what}=)")
    return wanted


@contextmanager
def _damaged(where: str) -> Iterator[None]:
    """What a library says of a file that it cannot read, in one line."""
    try:
        yield
    except Exception as error:  # a damaged or foreign file can raise nearly anything
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None):
            raise
        reason = printable(" ".join(str(error).split())[:200] or type(error).__name__)
        way_out = "save it again"
        if "allow_pickle" in reason:
            reason, way_out = "it holds Python objects, which may run code and are never loaded", "save numbers and texts"
        raise ValueError(f"{where} cannot be read ({reason}): {way_out}") from None


def _npy(file: Any) -> tuple[_Columns, bool]:
    array = np.lib.format.read_array(file, allow_pickle=False)
    return {"vectors": lambda: array}, False


def _npz(file: Any) -> tuple[_Columns, bool]:
    arrays = np.lib.npyio.NpzFile(file, allow_pickle=False)
    return {name: partial(arrays.__getitem__, name) for name in arrays.files}, "sha256" in arrays.files


def _parquet(file: Any) -> tuple[_Columns, bool]:
    table = pyarrow_modules()[1].ParquetFile(file)
    names = table.schema_arrow.names
    is_ours = b"facetric" in (table.schema_arrow.metadata or {})
    return {name: lambda name=name: _arrow_array(table.read(columns=[name])[name]) for name in names}, is_ours


def _arrow_array(column: Any) -> NDArray[Any]:
    """A column of lists of equal lengths as (n, dim), another one as it is."""
    types = pyarrow_modules()[0].types
    if not any(is_list(column.type) for is_list in (types.is_list, types.is_large_list, types.is_fixed_size_list)):
        return np.array(column.to_pylist(), dtype=None if types.is_integer(column.type) and not column.null_count else object)
    lengths = {0 if value is None else value for value in column.combine_chunks().value_lengths().to_pylist()}
    if len(lengths) != 1 or column.null_count:
        shortest, longest = min(lengths, default=0), max(lengths, default=0)
        raise ValueError(f"its vectors have from {0 if column.null_count else shortest} to {longest} numbers, not one dimension")
    flat = column.combine_chunks().flatten()
    if flat.null_count:
        raise ValueError("some of its vectors have empty places")
    return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(column), -1)


_COLUMNS: dict[str, Callable[[Any], tuple[_Columns, bool]]] = {".npy": _npy, ".npz": _npz, ".parquet": _parquet}
