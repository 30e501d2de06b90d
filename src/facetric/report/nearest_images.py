"""The nearest images of every image, exactly (faiss, flat index): for the sheets and the map."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Neighbors:
    """For every image its nearest others, nearest first; the image itself is not among them."""

    image_ids: NDArray[np.int64]  # (n, k)
    distances: NDArray[np.float32]  # (n, k) Euclidean


def nearest_neighbors(vectors: NDArray[np.floating], n_neighbors: int) -> Neighbors:
    """The `n_neighbors` nearest images of each by Euclidean distance; on unit vectors that is the order of the cosine, too."""
    import faiss

    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    n = len(vectors)
    if not 1 <= n_neighbors < n:
        raise ValueError(f"n_neighbors ({n_neighbors}) must be from 1 to the other images ({n - 1}): lower it")
    centered = vectors - vectors.mean(axis=0)  # distances stay, and products of small numbers round less
    index = faiss.IndexFlatL2(vectors.shape[1])
    index.add(centered)
    squared, found = index.search(centered, n_neighbors + 1)
    itself = found == np.arange(n)[:, None]
    itself[~itself.any(axis=1), -1] = True  # among many duplicates an image may miss itself: then the last one goes
    others = ~itself
    shape = (n, n_neighbors)
    distances = np.sqrt(np.maximum(squared[others].reshape(shape), 0.0))
    return Neighbors(found[others].reshape(shape).astype(np.int64), distances)
