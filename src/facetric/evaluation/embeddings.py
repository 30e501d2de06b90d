"""`Embeddings`: the vectors of a set of images, with what they are of. One frozen record, saved as .npz."""

from __future__ import annotations

import io
import json
import os
import zipfile
from dataclasses import dataclass, field
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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an .npz with the arrays vectors, labels, images and source (JSON); any NumPy reads it, nothing is pickled."""
        buffer = io.BytesIO()
        np.savez(buffer, vectors=self.vectors, labels=self.labels, images=self.images, source=np.array(json.dumps(self.source)))
        write_atomically(Path(path), buffer.getvalue())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Embeddings:
        """Read what `save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as arrays:
                source = json.loads(str(arrays["source"]))
                return cls(arrays["vectors"], arrays["labels"], arrays["images"], source)
        except (ValueError, KeyError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{path} holds no embeddings of facetric's ({error}): write it with `facetric evaluate RUN`"
            ) from None
