"""`Vectors`: n images as vectors of one model, in a file that others read too: .npz (NumPy), .parquet (pandas, polars, …), .csv.

A .npz or .parquet file carries a checksum; .npz alone keeps labels and source.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facetric.embedder.activations import cached_activations
from facetric.embedder.checkpoint import network_fingerprint
from facetric.embedder.encode import encode, inference
from facetric.embedder.network import WHOLE, Network
from facetric.files import pyarrow_modules, write_atomically
from facetric.images import ImageSource, mapped_array
from facetric.progress import Progress
from facetric.text import printable

_COLUMNS = ("path", "content", "model")
_BLOCK = 512  # images


@dataclass(frozen=True, eq=False)
class Vectors:
    """n images with their vectors. `source` says how they were made (dataset, split, checkpoint), as far as it is known."""

    vectors: NDArray[np.float32]  # (n, dim)
    names: tuple[str, ...]  # paths, or "#7" for an image in memory
    labels: NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # (n,) integers or texts, or none
    hashes: tuple[str, ...] = ()  # of each file's content, in hexadecimal digits, or none
    model: str = ""  # the fingerprint of the network
    source: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, rows in (("names", self.names), ("labels", self.labels), ("hashes", self.hashes)):
            if len(rows) != len(self.vectors) and (name == "names" or len(rows)):
                raise ValueError(
                    f"vectors and {name} must be of equal length; got {len(self.vectors)} and {len(rows)}: pass those of one set"
                )

    @classmethod
    def of(
        cls,
        network: Network,
        images: ImageSource,
        labels: NDArray[np.int64] | None = None,
        *,
        model: str = "",
        source: dict[str, Any] | None = None,
        batch_size: int | None = None,
        step: str = "Embedding",
        progress: Progress | None = None,
    ) -> Vectors:
        """Those of images by a network. What was computed before is in the cache folder, by content: a killed command resumes."""
        if network.freeze_through == WHOLE:  # what comes before the head is the same for all runs on these images
            features = cached_activations(network, images, n_views=0, center=True, step=step, progress=progress)
            vectors = encode(network, features, batch_size=batch_size)
        else:
            made_by = network_fingerprint(network)
            with (
                mapped_array(
                    images.hashes,
                    f"vectors-{network.name}",
                    "vectors",
                    (network.dim,),
                    "float32",
                    detail=f"{network.name}, {made_by[:12]}",
                    settings={"network": made_by},
                    step=step,
                    progress=progress,
                ) as kept,
                inference(network) as fast,
            ):
                for start in range(0, len(kept.missing), _BLOCK):
                    kept.write(encode(fast, images.take(kept.missing[start : start + _BLOCK]), batch_size=batch_size))
            vectors = np.asarray(kept.values[kept.rows])
        labels = np.empty(0, dtype=np.int64) if labels is None else labels
        return cls(vectors, tuple(images.names), labels, model=model, source=source or {})

    def __len__(self) -> int:
        return len(self.vectors)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything."""
        known = [self.model, self.source, self.vectors.shape, self.names, self.hashes, self.labels.tolist()]
        digest = hashlib.sha256(json.dumps(known, sort_keys=True).encode())
        digest.update(np.ascontiguousarray(self.vectors, dtype="<f4").tobytes())
        return digest.hexdigest()

    @staticmethod
    def format_of(path: Path) -> str:
        """The format by the suffix; a ValueError if it is not known, or needs a package that is not there."""
        suffix = path.suffix.lower()
        if suffix not in _FORMATS:
            raise ValueError(f"vectors are written as .parquet, .npz or .csv; got {printable(path)}: use one of these suffixes")
        if suffix == ".parquet":
            pyarrow_modules()
        return suffix

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, in the format of its suffix; the same vectors give the same bytes. Nothing is pickled."""
        path = Path(path).expanduser()
        suffix = self.format_of(path)
        if suffix != ".npz" and (len(self.labels) or not self.hashes):
            raise ValueError(f"vectors with labels, or without hashes, are kept as .npz; got {printable(path)}: use this suffix")
        write_atomically(path, _FORMATS[suffix][0](self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Vectors:
        """What `save` wrote; a ValueError for anything else."""
        path = Path(path).expanduser()
        read = _FORMATS[cls.format_of(path)][1]
        try:
            return read(path)
        except Exception as error:  # a damaged or foreign file can raise nearly anything
            if isinstance(error, OSError) and error.errno is not None:  # of the disk; pyarrow has some of its own
                raise
            reason = printable(" ".join(str(error).split()) or type(error).__name__)
            raise ValueError(
                f"{printable(path)} is damaged or holds no vectors that facetric wrote ({reason}): make it again with `facetric "
                "evaluate RUN`, or choose another file"
            ) from None


def _npz(found: Vectors) -> bytes:
    buffer = io.BytesIO()
    np.savez(
        buffer,
        vectors=found.vectors,
        names=np.array(found.names, dtype=np.str_),
        labels=found.labels,
        hashes=np.array(found.hashes, dtype=np.str_),
        model=np.array(found.model),
        source=np.array(json.dumps(found.source)),
        sha256=np.array(found.fingerprint),
    )
    return buffer.getvalue()


def _read_npz(path: Path) -> Vectors:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:  # numpy leaves a damaged file open
        names, hashes = (tuple(arrays[name].tolist()) for name in ("names", "hashes"))
        source = json.loads(str(arrays["source"]))
        found = Vectors(arrays["vectors"], names, arrays["labels"], hashes, str(arrays["model"]), source)
        return _checked(found, str(arrays["sha256"]))


def _parquet(found: Vectors) -> bytes:
    pyarrow, parquet = pyarrow_modules()
    n, dim = found.vectors.shape
    model = pyarrow.DictionaryArray.from_arrays(np.zeros(n, dtype=np.int32), [found.model])
    vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(found.vectors.ravel()), dim)
    table = pyarrow.table({"path": list(found.names), "content": list(found.hashes), "model": model, "vector": vectors})
    about = {"model": found.model, "dim": dim, "source": found.source, "sha256": found.fingerprint}
    buffer = io.BytesIO()
    parquet.write_table(table.replace_schema_metadata({"facetric": json.dumps(about)}), buffer)
    return buffer.getvalue()


def _read_parquet(path: Path) -> Vectors:
    _, parquet = pyarrow_modules()
    with path.open("rb") as file:
        table = parquet.read_table(file)
    about = json.loads(table.schema.metadata[b"facetric"])
    vectors = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, about["dim"])
    names, hashes = (tuple(table[column].to_pylist()) for column in ("path", "content"))
    return _checked(Vectors(vectors, names, hashes=hashes, model=about["model"], source=about["source"]), about["sha256"])


def _csv(found: Vectors) -> bytes:
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow((*_COLUMNS, *(f"v{i}" for i in range(found.vectors.shape[1]))))
    for name, content, vector in zip(found.names, found.hashes, found.vectors.tolist(), strict=True):
        rows.writerow((name, content, found.model, *(f"{number:.9g}" for number in vector)))  # digits for every float32
    return text.getvalue().encode()


def _read_csv(path: Path) -> Vectors:
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    dim = len(header) - len(_COLUMNS)
    if header != [*_COLUMNS, *(f"v{i}" for i in range(dim))]:
        raise ValueError("its columns are others")
    names, hashes, models = (tuple(row[column] for row in rows) for column in range(len(_COLUMNS)))
    if len(set(models)) != 1:
        raise ValueError("its vectors are not of one model")
    vectors = np.array([row[len(_COLUMNS) :] for row in rows], dtype=np.float32).reshape(-1, dim)
    return Vectors(vectors, names, hashes=hashes, model=models[0])


def _checked(found: Vectors, checksum: str) -> Vectors:
    if found.vectors.ndim != 2 or found.vectors.dtype != np.float32:
        raise ValueError("its columns do not fit together")
    if checksum != found.fingerprint:
        raise ValueError("its checksum is wrong")
    return found


_FORMATS: dict[str, tuple[Callable[[Vectors], bytes], Callable[[Path], Vectors]]] = {
    ".npz": (_npz, _read_npz),
    ".parquet": (_parquet, _read_parquet),
    ".csv": (_csv, _read_csv),
}
