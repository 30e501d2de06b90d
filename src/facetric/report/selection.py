"""What the page shows first (the worst queries, the medoid of each cluster), and the slow parts that are kept in figures/."""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facetric.files import write_atomically
from facetric.runs import Run

_log = logging.getLogger("facetric")


def worst_queries(neighbors: NDArray[np.int64], labels: NDArray[np.integer]) -> NDArray[np.int64]:
    """Queries by their lists of neighbors (n, k), worst first.

    First those without any neighbor of their class, then those with the fewest; ties go to the longest run of wrong images at
    the top, then to the lowest image id. Images that are alone in their class, or find only their class, are left out.
    """
    right = labels[neighbors] == labels[:, None]  # (n, k)
    _, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    wrong_at_top = np.where(right.any(axis=1), right.argmax(axis=1), right.shape[1])
    possible = np.minimum(sizes[codes] - 1, right.shape[1])
    precision = right.sum(axis=1) / np.maximum(possible, 1)
    order = np.lexsort((np.arange(len(labels)), -wrong_at_top, precision))
    chosen: NDArray[np.int64] = order[(possible[order] > 0) & (precision[order] < 1)].astype(np.int64)
    return chosen


def cluster_medoids(vectors: NDArray[np.floating], assignment: NDArray[np.integer]) -> dict[int, int]:
    """For each cluster the member with the least sum of distances to the others, the medoid of F; ties to the lowest id."""
    medoids = {}
    for cluster in np.unique(assignment).tolist():
        members = np.flatnonzero(assignment == cluster)
        own = vectors[members].astype(np.float64)
        own -= own.mean(axis=0)
        squares = np.einsum("nd,nd->n", own, own)
        sums = np.zeros(len(members))
        for start in range(0, len(members), 1024):  # blocks, so that a cluster of 60,000 fits in memory
            block = slice(start, start + 1024)
            squared = squares[block, None] + squares - 2 * own[block] @ own.T
            sums[block] = np.sqrt(np.maximum(squared, 0.0)).sum(axis=1)
        medoids[cluster] = int(members[sums.argmin()])
    return medoids


def kept(
    run: Run, name: str, vectors: NDArray[np.float32], settings: object, compute: Callable[[], NDArray[Any]]
) -> NDArray[Any]:
    """What `compute` gives for these vectors (n, d) and settings, from figures/NAME.npz of the run if it was computed before."""
    path = run.figures / f"{name}.npz"
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
        run.refuse_links()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, buffer.getvalue())
    return result
