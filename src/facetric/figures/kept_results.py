"""The slow parts of the figures of a run (map, clusters): computed once, cached in figures/ of the run folder."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facetric.evaluation.clustering import kmeans
from facetric.figures.tsne_map import tsne_positions
from facetric.files import write_atomically
from facetric.metrics.neighbors import Metric
from facetric.metrics.vectors import validated_vectors
from facetric.progress import Progress
from facetric.runs.run import Run


def kept_positions(
    folder: Path, vectors: NDArray[np.float32], *, seed: int = 0, on_progress: Progress | None = None
) -> NDArray[np.float64]:
    """t-SNE positions (n, 2) of the vectors (n, d), from ``figures/positions.npz`` when they are those of these vectors."""
    return _kept(folder, "positions", vectors, seed, lambda: tsne_positions(vectors, seed=seed, on_progress=on_progress))


def kept_clusters(
    folder: Path, vectors: NDArray[np.float32], class_labels: NDArray[np.integer], *, metric: Metric, seed: int = 0
) -> NDArray[np.int64]:
    """The k-means clustering (n,) that the evaluation scores under this seed, k = number of classes; kept like the positions.

    A ValueError for vectors that cannot be scored, such as those of one class.
    """

    def compute() -> NDArray[np.int64]:
        rows, codes = validated_vectors(vectors, class_labels, metric)
        return kmeans(rows, int(codes.max()) + 1, seed=seed).assignment

    return _kept(folder, "clusters", vectors, (len(np.unique(class_labels)), metric, seed), compute)


def _kept(
    folder: Path, name: str, vectors: NDArray[np.float32], settings: object, compute: Callable[[], NDArray[Any]]
) -> NDArray[Any]:
    path = Run(folder).figures / f"{name}.npz"
    content = np.ascontiguousarray(vectors)
    key = hashlib.sha256(content.tobytes() + repr((content.shape, content.dtype.str, settings)).encode()).hexdigest()
    try:
        with np.load(path, allow_pickle=False) as file:
            if str(file["key"]) == key:
                return np.asarray(file["result"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        pass  # missing or damaged: compute it
    result = compute()
    buffer = io.BytesIO()
    np.savez(buffer, key=np.array(key), result=result)
    with suppress(OSError):  # a read-only run: computed again next time
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, buffer.getvalue())
    return result
