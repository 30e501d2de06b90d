"""The nearest images of every image, exactly (faiss, flat index): for the sheets and the map."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Neighbours:
    """For every image its nearest others, nearest first; the image itself is not among them."""

    image_ids: NDArray[np.int64]  # (n, k)
    distances: NDArray[np.float32]  # (n, k) Euclidean


def nearest_neighbours(vectors: NDArray[np.floating], n_neighbours: int) -> Neighbours:
    """The `n_neighbours` nearest images of each by Euclidean distance; on unit vectors that is the order of the cosine, too."""
    import faiss

    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    n = len(vectors)
    if not 1 <= n_neighbours < n:
        raise ValueError(f"n_neighbours ({n_neighbours}) must be from 1 to the other images ({n - 1}): lower it")
    centred = vectors - vectors.mean(axis=0)  # distances stay, and products of small numbers round less
    index = faiss.IndexFlatL2(vectors.shape[1])
    index.add(centred)
    squared, found = index.search(centred, n_neighbours + 1)
    itself = found == np.arange(n)[:, None]
    itself[~itself.any(axis=1), -1] = True  # among many duplicates an image may miss itself: then the last one goes
    others = ~itself
    shape = (n, n_neighbours)
    distances = np.sqrt(np.maximum(squared[others].reshape(shape), 0.0))
    return Neighbours(found[others].reshape(shape).astype(np.int64), distances)
