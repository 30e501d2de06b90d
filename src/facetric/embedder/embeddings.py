"""`Embeddings`: the vectors of a set of images with labels and names, saved as .npz."""

from __future__ import annotations

import hashlib
import io
import json
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facetric.files import write_atomically


@dataclass(frozen=True, eq=False)
class Embeddings:
    """n images as vectors. `source` says how they were made (views, dataset, split, checkpoint), as far as it is known."""

    vectors: NDArray[np.float32]  # (n, d)
    labels: NDArray[np.int64]  # (n,)
    images: NDArray[np.str_]  # (n,) paths, or "#7" for a picture held in memory
    source: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not len(self.vectors) == len(self.labels) == len(self.images):
            raise ValueError(
                f"vectors, labels and images must be of equal length; got {len(self.vectors)}, {len(self.labels)} and "
                f"{len(self.images)}: pass those of one dataset"
            )

    def __len__(self) -> int:
        return len(self.vectors)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of vectors, labels, image names and source."""
        digest = hashlib.sha256(json.dumps(self.source, sort_keys=True).encode())
        for array in (self.vectors, self.labels, self.images):
            digest.update(f"{array.dtype.str} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an .npz with the arrays vectors, labels, images, source (JSON) and fingerprint; nothing is pickled."""
        source, fingerprint = np.array(json.dumps(self.source)), np.array(self.fingerprint)
        buffer = io.BytesIO()
        np.savez(buffer, vectors=self.vectors, labels=self.labels, images=self.images, source=source, fingerprint=fingerprint)
        write_atomically(Path(path), buffer.getvalue())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Embeddings:
        """Read what `save` wrote; a ValueError for anything else."""
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
                source = json.loads(str(arrays["source"]))
                found = cls(arrays["vectors"], arrays["labels"], arrays["images"], source)
                if str(arrays["fingerprint"]) != found.fingerprint:
                    raise ValueError("its fingerprint does not match its content")
        except FileNotFoundError:
            raise
        except Exception as error:  # a damaged archive can raise nearly anything
            raise _not_embeddings(path, error) from None
        return found


def read_fingerprint(path: str | os.PathLike[str]) -> str:
    """The fingerprint in a file of embeddings, without reading its vectors."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            return str(arrays["fingerprint"])
    except FileNotFoundError:
        raise
    except Exception as error:  # as in Embeddings.load
        raise _not_embeddings(path, error) from None


def _not_embeddings(path: str | os.PathLike[str], error: Exception) -> ValueError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return ValueError(
        f"{path} is damaged or holds no embeddings of this version ({reason}): write it with `facetric evaluate RUN`"
    )
