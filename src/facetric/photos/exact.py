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


def nearest(
    vectors: NDArray[np.float32], queries: NDArray[np.float32], top: int
) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Rows and similarities of the `top` unit vectors (n, d) most similar to each unit query (q, d), equal ones by row.

    The fast pass takes all queries together, so that the vectors are read from memory once for many of them.
    """
    import faiss

    n = len(vectors)
    top, k = min(top, n), min(2 * top + 8, n)
    if top < 1 or not len(queries):
        return [(np.empty(0, dtype=np.int64), np.empty(0))] * len(queries)
    fast, rows = faiss.knn(queries, vectors, k, metric=faiss.METRIC_INNER_PRODUCT)
    return [_decided(vectors, *one, top) for one in zip(queries, fast, rows, strict=True)]


def _decided(
    vectors: NDArray[np.float32], query: NDArray[np.float32], fast: NDArray[np.float32], rows: NDArray[np.int64], top: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The `top` among the proposed rows; more are proposed while a row outside could be as similar."""
    import faiss

    n, d = vectors.shape
    while True:
        rows = np.sort(rows)
        exact = similarities(vectors[rows], query)
        order = np.argsort(-exact, kind="stable")[:top]
        if len(rows) == n or fast[-1] + 2 * rounding(d) < exact[order[-1]]:
            return rows[order], exact[order]
        (fast,), (rows,) = faiss.knn(query[None], vectors, min(4 * len(rows), n), metric=faiss.METRIC_INNER_PRODUCT)
