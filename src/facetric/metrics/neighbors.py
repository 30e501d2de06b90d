"""Exact ranks of the images of a query's own class among its neighbors, computed in blocks.

Every retrieval score follows from the ranks of a query's *positives* (the gallery images of its class), and a positive's rank
follows from how many other images are nearer. So only the positives are sorted. A block of queries is multiplied with the gallery
tile by tile in float32, and each product only has to tell on which side of a positive an image falls.

Why blocks cannot change a result: the order is that of distances computed pair by pair in float64, always in the same order
of additions, and equal distances go to the lowest index. The product is a filter. Rounding moves it by at most
γ = (d + 4)·u·Σ|terms|, u = 2⁻²⁴, in whatever order it is summed (Higham, "Accuracy and Stability of Numerical Algorithms",
2002, section 3.1), and an image within γ of a positive is placed by its float64 distance.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from facetric.machine import blas_threads, numba_threads
from facetric.metrics.kernels import Gallery, Queries, count_others, read_ranks, sort_positives
from facetric.progress import Progress

Metric = Literal["cosine", "euclidean"]

BLOCK_SIZE, TILE_SIZE = 1024, 512  # queries and gallery images of a product: 2 MiB, small enough for a cache
_BYTES_PER_POSITIVE = 48  # key, position and count, and their sort


@dataclass(frozen=True, eq=False)
class PositiveRanks:
    """For every query, how its positives rank in the gallery; the query itself has no rank."""

    n_positives: NDArray[np.int64]  # (n_queries,) R: gallery images of the query's class, without the query
    first_rank: NDArray[np.int64]  # (n_queries,) rank of the nearest positive, from 1; max_rank + 1 when beyond max_rank
    r_precision: NDArray[np.float64]  # (n_queries,) fraction of positives among the R nearest; 0 without positives
    average_precision: NDArray[np.float64]  # (n_queries,) AP@R; 0 without positives


def rank_positives(
    vectors: NDArray[np.float32],
    classes: NDArray[np.int64],
    query_rows: NDArray[np.int64],
    gallery_rows: NDArray[np.int64],
    *,
    metric: Metric,
    max_rank: int,
    memory_gib: float = 1.0,
    block_size: int = BLOCK_SIZE,
    tile_size: int = TILE_SIZE,
    progress: Progress | None = None,
) -> PositiveRanks:
    """Rank the positives of every query row. A row that is both query and gallery never finds itself.

    `classes` are codes from 0, `gallery_rows` are sorted and distinct, vectors are no longer than about 1 (unit vectors when
    the metric is cosine). Input is trusted: :func:`facetric.metrics.retrieval.retrieval` checks it.
    """
    gallery, factors, longest = _gallery(vectors, classes, gallery_rows, metric)
    own = classes[query_rows]
    n_positives = gallery.first_member[own + 1] - gallery.first_member[own] - np.isin(query_rows, gallery_rows)
    n_queries = len(query_rows)
    first_rank = np.full(n_queries, max_rank + 1, dtype=np.int64)
    r_precision, average_precision = np.zeros(n_queries), np.zeros(n_queries)

    def rank_block(block: slice) -> int:
        rows = query_rows[block]
        queries = _queries(vectors[rows], rows, own[block], n_positives[block], gallery, longest)
        sort_positives(queries, gallery)
        left = np.column_stack([queries.vectors, np.ones_like(queries.cutoff)]) if gallery.euclidean else queries.vectors
        tile = np.empty(len(rows) * min(tile_size, len(gallery_rows)), dtype=np.float32)
        for first in range(0, len(gallery_rows), tile_size):
            right = factors[first : first + tile_size]
            products = np.matmul(left, right.T, out=tile[: len(rows) * len(right)].reshape(len(rows), len(right)))
            count_others(products, first, max_rank, queries, gallery)
        read_ranks(max_rank, queries, first_rank[block], r_precision[block], average_precision[block])
        return int(block.stop)

    n_threads = numba_threads()
    blocks = _blocks(n_positives, block_size, memory_gib / n_threads)
    # A block per thread and one BLAS thread each: threads that share a product wait for each other, tile after tile.
    with blas_threads(1), ThreadPoolExecutor(n_threads, thread_name_prefix="facetric-ranks") as pool:
        for n_done in pool.map(rank_block, blocks):
            if progress is not None:
                progress("Neighbors", n_done, n_queries)
    return PositiveRanks(n_positives, first_rank, r_precision, average_precision)


def _gallery(
    vectors: NDArray[np.float32], classes: NDArray[np.int64], rows: NDArray[np.int64], metric: Metric
) -> tuple[Gallery, NDArray[np.float32], float]:
    """The gallery, the right side of its products, and the norm of its longest vector."""
    chosen = vectors if len(rows) == len(vectors) else vectors[rows]
    squares = np.einsum("nd,nd->n", chosen, chosen, dtype=np.float64)
    factors = -chosen
    if metric == "euclidean":  # (x, 1)·(−2y, ‖y‖²) = ‖x − y‖² − ‖x‖²
        factors = np.column_stack([2 * factors, squares.astype(np.float32)])
    own = classes[rows]
    first_member = np.concatenate([[0], np.cumsum(np.bincount(own, minlength=int(classes.max()) + 1))])
    gallery = Gallery(chosen, rows, own, np.argsort(own, kind="stable"), first_member, metric == "euclidean")
    return gallery, factors, float(np.sqrt(squares.max()))


def _queries(
    vectors: NDArray[np.float32],
    rows: NDArray[np.int64],
    classes: NDArray[np.int64],
    n_positives: NDArray[np.int64],
    gallery: Gallery,
    longest: float,
) -> Queries:
    m, d = vectors.shape
    squares = np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)
    first_positive = np.concatenate([[0], np.cumsum(n_positives)])
    return Queries(
        vectors=vectors,
        rows=rows,
        classes=classes,
        squares=squares if gallery.euclidean else np.zeros(m),
        slack=rounding(squares, d, longest, gallery.euclidean),
        first_positive=first_positive,
        keys=np.empty(first_positive[-1]),
        positions=np.empty(first_positive[-1], dtype=np.int64),
        counts=np.zeros(first_positive[-1], dtype=np.int64),
        last=n_positives - 1,
        n_before=np.zeros(m, dtype=np.int64),
        cutoff=np.empty(m, dtype=np.float32),
    )


def rounding(squares: NDArray[np.float64], d: int, longest: float, euclidean: bool) -> NDArray[np.float64]:
    """γ of queries with these squared lengths, the longest vector of the gallery given. (m,)"""
    terms = 2 * np.sqrt(squares) * longest + longest**2 if euclidean else np.sqrt(squares) * longest
    bound: NDArray[np.float64] = 1.01 * (d + 4) * (2.0**-24 * terms + 1e-37)  # 1.01: second order, float64 sums; 1e-37: underflow
    return bound


def _blocks(n_positives: NDArray[np.int64], block_size: int, memory_gib: float) -> list[slice]:
    """Ranges of at most `block_size` queries whose positives fit in the budget; a single query is always allowed."""
    affordable = memory_gib * 2**30 / _BYTES_PER_POSITIVE
    ends = np.cumsum(n_positives)
    blocks: list[slice] = []
    start = 0
    while start < len(n_positives):
        before = int(ends[start - 1]) if start else 0
        fitting = int(np.searchsorted(ends, before + affordable, side="right"))
        stop = min(start + block_size, max(fitting, start + 1), len(n_positives))
        blocks.append(slice(start, stop))
        start = stop
    return blocks
