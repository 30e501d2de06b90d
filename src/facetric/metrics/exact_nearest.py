"""The k nearest rows of every query, exactly: float32 products propose, float64 decides, and equal ones go by row.

The last bits of a float32 product depend on where a row lies in the matrix, so equal vectors may differ there. More rows than
asked for are therefore proposed, and a query whose k-th row is within rounding of those left out is compared with all rows.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.machine import blas_threads, numba_threads
from facetric.metrics.kernels import nearest_keys
from facetric.metrics.neighbors import Metric, rounding

_BLOCK_SIZE = 512  # queries of a product


class Nearest(NamedTuple):
    """The nearest rows of every query, nearest first."""

    rows: NDArray[np.int64]  # (q, k)
    values: NDArray[np.float64]  # (q, k) cosine similarities, or Euclidean distances


def nearest(
    vectors: NDArray[np.floating], k: int, *, queries: NDArray[np.floating] | None = None, metric: Metric = "cosine"
) -> Nearest:
    """The k vectors (n, d) nearest to every query (q, d), all if there are fewer; without queries to every vector, not itself.

    "cosine" takes vectors of length one (:func:`unit_rows`).

    >>> nearest(np.array([[0.0], [1.0], [1.0], [5.0]]), 2, metric="euclidean").rows.tolist()
    [[1, 2], [2, 0], [1, 0], [1, 2]]
    """
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    asking = vectors if queries is None else np.ascontiguousarray(queries, dtype=np.float32)
    n_others = len(vectors) - (queries is None)
    k = max(min(k, n_others), 0)
    found = Nearest(np.empty((len(asking), k), dtype=np.int64), np.empty((len(asking), k)))
    if not found.rows.size:
        return found
    euclidean, n_kept = metric == "euclidean", min(k + 16, n_others)
    squares = np.einsum("nd,nd->n", vectors, vectors) if euclidean else np.zeros(len(vectors), dtype=np.float32)
    lengths = np.einsum("nd,nd->n", asking, asking, dtype=np.float64)
    slack = rounding(lengths, asking.shape[1], float(np.sqrt(squares.max())) if euclidean else 1.0, euclidean)
    own = np.arange(len(asking)) if queries is None else np.full(len(asking), -1)

    def propose(block: slice, rows: slice) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        return nearest_keys(asking[block] * (-2 if euclidean else -1), vectors, squares, own[block], n_kept, rows)

    def decide(block: slice, ids: NDArray[np.int32], last: NDArray[np.float32]) -> None:
        few = asking[block], vectors, own[block], euclidean
        unsure = _decide(*few, ids, last - slack[block], found.rows[block], found.values[block])
        for i in np.flatnonzero(unsure):
            everyone = np.arange(len(vectors), dtype=np.int32)[None]
            one = slice(block.start + i, block.start + i + 1)
            _decide(asking[one], vectors, own[one], euclidean, everyone, np.full(1, np.inf), found.rows[one], found.values[one])

    def answer(block: slice) -> None:
        ids, keys = propose(block, slice(0, len(vectors)))
        decide(block, ids, keys[:, -1])

    n_threads, blocks = numba_threads(), [slice(i, i + _BLOCK_SIZE) for i in range(0, len(asking), _BLOCK_SIZE)]
    with blas_threads(1), ThreadPoolExecutor(n_threads, "facetric-nearest") as pool:
        if len(blocks) > 1:
            list(pool.map(answer, blocks))
        else:  # few queries: threads share the rows instead
            ends = np.linspace(0, len(vectors), n_threads + 1).astype(int)
            parts = list(pool.map(lambda i: propose(blocks[0], slice(ends[i], ends[i + 1])), range(n_threads)))
            last = np.min([keys[:, -1] for _, keys in parts], axis=0)
            decide(blocks[0], np.concatenate([ids for ids, _ in parts], axis=1), last)
    return found


@njit(cache=True, nogil=True)
def _decide(
    queries: NDArray[np.float32],
    vectors: NDArray[np.float32],
    own: NDArray[np.int64],
    euclidean: bool,
    ids: NDArray[np.int32],
    above: NDArray[np.float64],
    rows: NDArray[np.int64],
    values: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Fill the nearest of the proposed rows; which queries may have a nearer one, as their key is not below `above`. (q,)"""
    k, unsure = rows.shape[1], np.zeros(len(queries), np.bool_)
    for i in range(len(queries)):
        proposed = np.sort(ids[i])
        proposed = proposed[(proposed >= 0) & (proposed != own[i])]
        keys = np.empty(len(proposed))
        square = 0.0
        for x in queries[i]:
            square += np.float64(x) * np.float64(x)
        for p in range(len(proposed)):
            vector = vectors[proposed[p]]
            total = 0.0
            for j in range(len(vector)):
                x, y = np.float64(queries[i, j]), np.float64(vector[j])
                total += (x - y) * (x - y) if euclidean else -x * y
            keys[p] = total
        order = np.argsort(keys, kind="mergesort")[:k]
        for p in range(k):
            rows[i, p] = proposed[order[p]]
            values[i, p] = np.sqrt(keys[order[p]]) if euclidean else -keys[order[p]]
        unsure[i] = not (keys[order[k - 1]] - (square if euclidean else 0.0) < above[i])
    return unsure
