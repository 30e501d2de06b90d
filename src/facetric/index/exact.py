"""Exact search in memory: a fast pass in float32 proposes, float64 decides, and ties go to the first row.

The last bits of a float32 product depend on where a row lies in the matrix, so equal vectors may differ there. The fast pass
therefore proposes every row that could belong to the result within its rounding error.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of length one; a row of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    found: NDArray[np.float32] = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return found


def similarities(vectors: NDArray[np.float32], query: NDArray[np.float32]) -> NDArray[np.float64]:
    """Products (n,) in float64. A row's sum does not depend on the other rows."""
    found: NDArray[np.float64] = (vectors.astype(np.float64) * query.astype(np.float64)).sum(axis=1)
    return found


def rounding(dimensions: int) -> float:
    """How far a float32 product of two unit vectors may be from the true one."""
    return (dimensions + 2) * 2.0**-23


def nearest(vectors: NDArray[np.float32], query: NDArray[np.float32], top: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Rows and similarities of the `top` unit vectors (n, d) most similar to a unit query (d,), equal ones by row."""
    import faiss

    n, d = vectors.shape
    top, k = min(top, n), min(2 * top + 8, n)
    while top > 0:
        fast, rows = faiss.knn(query[None], vectors, k, metric=faiss.METRIC_INNER_PRODUCT)
        rows = np.sort(rows[0])
        exact = similarities(vectors[rows], query)
        order = np.argsort(-exact, kind="stable")[:top]
        if k == n or fast[0, -1] + 2 * rounding(d) < exact[order[-1]]:  # no row outside can be as similar
            return rows[order], exact[order]
        k = min(4 * k, n)
    return np.empty(0, dtype=np.int64), np.empty(0)
