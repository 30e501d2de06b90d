"""Vectors of photos in one file that others read too: .npz (NumPy), .parquet (pandas, polars, DuckDB, …) or .csv.

Every row is a photo: its path below the folder that was embedded, the hash of its content, the fingerprint of the model, and its
vector. Bytes of a path that are not UTF-8 are written as \\udcXX. A .npz or .parquet file carries a checksum, a .csv file one in
every row.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facetric.files import write_atomically
from facetric.text import printable

COLUMNS = ("path", "content", "model")
CHECKSUM = "crc32"  # the last column of a .csv


@dataclass(frozen=True, eq=False)
class PhotoVectors:
    """n photos with their vectors, all of one model."""

    paths: tuple[str, ...]
    contents: tuple[str, ...]  # BLAKE2b of the file's bytes, 16 bytes as hexadecimal digits
    model: str  # the fingerprint
    vectors: NDArray[np.float32]  # (n, d)

    def __len__(self) -> int:
        return len(self.paths)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything."""
        digest = hashlib.sha256(json.dumps([self.model, self.vectors.shape, self.paths, self.contents]).encode())
        digest.update(np.ascontiguousarray(self.vectors, dtype="<f4").tobytes())
        return digest.hexdigest()


def readable(path: Path) -> str:
    """A relative path as every format can hold it: with slashes, and undecodable bytes escaped."""
    return path.as_posix().encode("utf-8", "backslashreplace").decode()


def write_vectors(path: str | os.PathLike[str], found: PhotoVectors) -> None:
    """Write the file, in the format of its suffix; the same vectors give the same bytes."""
    path = Path(path).expanduser()
    write_atomically(path, _FORMATS[check_suffix(path)][0](found))


def read_vectors(path: str | os.PathLike[str]) -> PhotoVectors:
    """What `write_vectors` wrote; a ValueError for anything else."""
    path = Path(path).expanduser()
    suffix = check_suffix(path)
    try:
        return _FORMATS[suffix][1](path)
    except Exception as error:  # a damaged or foreign file can raise nearly anything
        if isinstance(error, OSError) and error.errno is not None:  # of the disk; pyarrow has some of its own
            raise
        raise ValueError(
            f"{printable(path)} holds no vectors that facetric wrote ({printable(error)}): choose another file (--output)"
        ) from None


def check_suffix(path: Path) -> str:
    """The format by the suffix; a ValueError if it is not known, or needs a package that is not there."""
    suffix = path.suffix.lower()
    if suffix not in _FORMATS:
        raise ValueError(
            f"vectors are written as .parquet, .npz or .csv; got {printable(path)}: use one of these suffixes (--output)"
        )
    if suffix == ".parquet":
        _pyarrow()
    return suffix


def _npz(found: PhotoVectors) -> bytes:
    buffer = io.BytesIO()
    np.savez(
        buffer,
        paths=np.array(found.paths, dtype=np.str_),
        contents=np.array(found.contents, dtype=np.str_),
        model=np.array(found.model),
        vectors=found.vectors,
        sha256=np.array(found.fingerprint),
    )
    return buffer.getvalue()


def _read_npz(path: Path) -> PhotoVectors:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:  # numpy leaves a damaged file open
        paths, contents, model, vectors = (arrays[name] for name in ("paths", "contents", "model", "vectors"))
        checksum = str(arrays["sha256"]) if "sha256" in arrays else None  # files of 0.1 have none
    return _checked(paths.tolist(), contents.tolist(), str(model), vectors, checksum)


def _parquet(found: PhotoVectors) -> bytes:
    pyarrow, parquet = _pyarrow()
    n, d = found.vectors.shape
    model = pyarrow.DictionaryArray.from_arrays(np.zeros(n, dtype=np.int32), [found.model])
    vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(found.vectors.ravel()), d)
    table = pyarrow.table(
        {"path": list(found.paths), "content": list(found.contents), "model": model, "vector": vectors},
    ).replace_schema_metadata({"facetric": json.dumps({"model": found.model, "dimensions": d, "sha256": found.fingerprint})})
    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    return buffer.getvalue()


def _read_parquet(path: Path) -> PhotoVectors:
    _, parquet = _pyarrow()
    with path.open("rb") as file:
        table = parquet.read_table(file)
    about = json.loads(table.schema.metadata[b"facetric"])
    column = table["vector"].combine_chunks()
    vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, about["dimensions"])
    return _checked(table["path"].to_pylist(), table["content"].to_pylist(), about["model"], vectors, about.get("sha256"))


def _csv(found: PhotoVectors) -> bytes:
    text = io.StringIO(newline="")
    d = found.vectors.shape[1]
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow((*COLUMNS, *(f"v{i}" for i in range(d)), CHECKSUM))
    for path, content, vector in zip(found.paths, found.contents, found.vectors.tolist(), strict=True):
        row = (path, content, found.model, *(f"{number:.9g}" for number in vector))  # enough digits for every float32
        rows.writerow((*row, _row_checksum(row, len(found.paths))))
    return text.getvalue().encode()


def _row_checksum(row: Sequence[str], n_rows: int) -> str:
    """Of a row in a file of this many, so that none can be missing."""
    return f"{zlib.crc32(chr(0).join((str(n_rows), *row)).encode()):08x}"


def _read_csv(path: Path) -> PhotoVectors:
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        header = next(rows)
        d = len(header) - len(COLUMNS) - 1
        if header == [*COLUMNS, *(f"v{i}" for i in range(d + 1))]:
            raise ValueError("its rows have no checksums, it is of an earlier version")
        if header != [*COLUMNS, *(f"v{i}" for i in range(d)), CHECKSUM]:
            raise ValueError("its columns are others")
        paths: list[str] = []
        contents: list[str] = []
        models, vectors = set(), []
        all_rows = list(rows)
        if not all_rows:
            raise ValueError("it has no rows")
        for *row, checksum in all_rows:
            if checksum != _row_checksum(row, len(all_rows)):
                raise ValueError(f"the checksum of row {len(paths) + 1} is wrong, or rows are missing")
            name, content, model, *numbers = row
            paths.append(name)
            contents.append(content)
            models.add(model)
            vectors.append(np.array(numbers, dtype=np.float32))
    if len(models) > 1:
        raise ValueError("its vectors are of several models")
    return _checked(paths, contents, models.pop(), np.array(vectors, dtype=np.float32).reshape(-1, d))


_FORMATS: dict[str, tuple[Callable[[PhotoVectors], bytes], Callable[[Path], PhotoVectors]]] = {
    ".npz": (_npz, _read_npz),
    ".parquet": (_parquet, _read_parquet),
    ".csv": (_csv, _read_csv),
}


def _checked(
    paths: list[str], contents: list[str], model: str, vectors: NDArray[np.float32], checksum: str | None = None
) -> PhotoVectors:
    if not len(paths) == len(contents) == len(vectors) or vectors.ndim != 2 or vectors.dtype != np.float32:
        raise ValueError("its columns do not fit together")
    found = PhotoVectors(tuple(paths), tuple(contents), model, vectors)
    if checksum is not None and checksum != found.fingerprint:
        raise ValueError("its checksum is wrong")
    return found


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError(
            "Parquet files need pyarrow: pip install 'facetric[parquet]', or write .npz or .csv (--output vectors.npz)"
        ) from None
    return pyarrow, pyarrow.parquet


def write_problems(path: Path, problems: Iterable[tuple[Path, str]]) -> None:
    """A table path,problem; no file if there are none."""
    rows = [(readable(photo), printable(reason.encode("utf-8", "backslashreplace").decode())) for photo, reason in problems]
    if not rows:
        if is_problem_table(path):
            path.unlink()
        return
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([("path", "problem"), *rows])
    write_atomically(path, text.getvalue().encode())


def is_problem_table(path: str | os.PathLike[str]) -> bool:
    """Whether this is a file that `write_problems` wrote."""
    try:
        with open(path, "rb") as file:
            return file.read(13) == b"path,problem\n"
    except OSError:
        return False
