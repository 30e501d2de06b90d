"""The slow parts of the figures of a run (map, clusters): computed once, cached in figures/ of the run folder."""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facetric.evaluation import facility_clusters
from facetric.files import write_atomically
from facetric.metrics import Metric, validated_vectors
from facetric.progress import Progress
from facetric.report.tsne_map import tsne_positions
from facetric.runs import Run

_log = logging.getLogger("facetric")


def kept_positions(
    folder: Path, vectors: NDArray[np.float32], *, seed: int = 0, on_progress: Progress | None = None
) -> NDArray[np.float64]:
    """t-SNE positions (n, 2) of the vectors (n, d), from ``figures/positions.npz`` when they are those of these vectors."""
    return _kept(folder, "positions", vectors, seed, lambda: tsne_positions(vectors, seed=seed, on_progress=on_progress))


def kept_clusters(
    folder: Path, vectors: NDArray[np.float32], class_labels: NDArray[np.integer], *, metric: Metric
) -> NDArray[np.int64]:
    """The clustering (n,) that the evaluation scores, means from medoids, k = number of classes; kept like the positions.

    A ValueError for vectors that cannot be scored, such as those of one class.
    """

    def compute() -> NDArray[np.int64]:
        rows, codes = validated_vectors(vectors, class_labels, metric)
        labels: NDArray[np.int64] = facility_clusters(rows, int(codes.max()) + 1).labels_
        return labels

    return _kept(folder, "clusters", vectors, ("means from medoids", len(np.unique(class_labels)), metric), compute)


def _kept(
    folder: Path, name: str, vectors: NDArray[np.float32], settings: object, compute: Callable[[], NDArray[Any]]
) -> NDArray[Any]:
    path = Run(folder).figures / f"{name}.npz"
    content = np.ascontiguousarray(vectors)
    key = hashlib.sha256(content.tobytes() + repr((content.shape, content.dtype.str, settings)).encode()).hexdigest()
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if str(arrays["key"]) == key:
                return np.asarray(arrays["result"])
    except Exception:  # missing, or a damaged archive, which can raise nearly anything: compute it
        _log.debug("%s is made again", path)
    result = compute()
    buffer = io.BytesIO()
    np.savez(buffer, key=np.array(key), result=result)
    with suppress(OSError):  # a run that may not be written to: computed again next time
        Run(folder).refuse_links()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, buffer.getvalue())
    return result
