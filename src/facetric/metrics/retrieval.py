"""Retrieval scores: Recall@K (the paper's Section 5), precision@1, R-precision and MAP@R (Musgrave, Belongie and Lim 2020).

A query is excluded from its own results by its index, never by its rank or its distance. Equal distances go to the lowest index.
Queries without a positive (no other image of their class in the gallery) cannot be answered: they are counted and left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facetric.metrics.neighbors import Metric, rank_positives
from facetric.metrics.vectors import validated_vectors
from facetric.progress import Progress


@dataclass(frozen=True)
class RetrievalScores:
    """The mean over queries of every retrieval score, as fractions."""

    recall_at_k: dict[int, float]
    precision_at_1: float
    r_precision: float
    map_at_r: float
    n_queries: int  # that were scored
    n_left_out: int  # queries without a positive
    n_gallery: int


def retrieval(
    vectors: ArrayLike,
    labels: ArrayLike,
    *,
    ks: Sequence[int] = (1, 2, 4, 8),
    metric: Metric = "cosine",
    query: ArrayLike | None = None,
    gallery: ArrayLike | None = None,
    memory_gib: float = 1.0,
    progress: Progress | None = None,
) -> RetrievalScores:
    """All retrieval scores of n vectors (n, d) with their labels (n,), in one pass.

    * ``query``, ``gallery``: rows, or masks of rows. Without either, every image is a query against all others; with one, the
      other is the rest. A row in both never finds itself.
    * ``memory_gib``: working memory, besides the vectors; changes no score.
    * ``progress``: called with (step, done, total).

    >>> scores = retrieval([[0.0], [0.1], [0.3], [5.0], [5.1]], [0, 0, 1, 1, 1], ks=(1, 2), metric="euclidean")
    >>> scores.recall_at_k, round(scores.r_precision, 2), round(scores.map_at_r, 2)
    ({1: 0.8, 2: 0.8}, 0.8, 0.8)
    """
    rows, classes = validated_vectors(vectors, labels, metric)
    return score_retrieval(rows, classes, ks, metric, query, gallery, memory_gib, progress)


def score_retrieval(
    rows: NDArray[np.float32],
    classes: NDArray[np.int64],
    ks: Sequence[int],
    metric: Metric,
    query: ArrayLike | None,
    gallery: ArrayLike | None,
    memory_gib: float,
    progress: Progress | None,
) -> RetrievalScores:
    """:func:`retrieval` of what `validated_vectors` gave."""
    if not memory_gib > 0:
        raise ValueError(f"memory_gib must be above 0; got {memory_gib}: 1 is plenty for a million images")
    query_rows, gallery_rows = _split(len(rows), query, gallery)
    largest = len(gallery_rows) - int(np.isin(query_rows, gallery_rows).all())
    cutoffs = checked_ks(ks, largest)
    ranks = rank_positives(
        rows, classes, query_rows, gallery_rows, metric=metric, max_rank=max(cutoffs), memory_gib=memory_gib, progress=progress
    )
    counted = ranks.n_positives > 0
    if not counted.any():
        raise ValueError(
            f"none of the {len(query_rows)} queries has another image of its class in the gallery, so nothing can be retrieved: "
            "check the labels, or the query and gallery rows"
        )
    return RetrievalScores(
        recall_at_k={k: float(np.mean(ranks.first_rank[counted] <= k)) for k in cutoffs},
        precision_at_1=float(np.mean(ranks.first_rank[counted] == 1)),
        r_precision=float(np.mean(ranks.r_precision[counted])),
        map_at_r=float(np.mean(ranks.average_precision[counted])),
        n_queries=int(counted.sum()),
        n_left_out=int((~counted).sum()),
        n_gallery=len(gallery_rows),
    )


@dataclass(frozen=True, eq=False)
class ClassRetrieval:
    """The mean over the queries of each class, as fractions; classes of one image are left out."""

    classes: NDArray[np.int64]  # (c,) labels, ascending
    recall_at_1: NDArray[np.float64]  # (c,)
    map_at_r: NDArray[np.float64]  # (c,)


def retrieval_by_class(vectors: ArrayLike, labels: ArrayLike, *, metric: Metric = "cosine") -> ClassRetrieval:
    """Recall@1 and MAP@R of every class with integer labels (n,), each image a query against all others.

    >>> found = retrieval_by_class([[0.0], [0.1], [0.3], [5.0], [5.1]], [7, 7, 8, 8, 8], metric="euclidean")
    >>> found.classes.tolist(), found.recall_at_1.round(2).tolist(), found.map_at_r.round(2).tolist()
    ([7, 8], [1.0, 0.67], [1.0, 0.67])
    """
    rows, codes = validated_vectors(vectors, labels, metric)
    everything = np.arange(len(rows))
    ranks = rank_positives(rows, codes, everything, everything, metric=metric, max_rank=1)
    sizes = np.bincount(codes)
    kept = sizes > 1
    return ClassRetrieval(
        classes=np.unique(np.asarray(labels, dtype=np.int64))[kept],
        recall_at_1=np.bincount(codes, ranks.first_rank == 1)[kept] / sizes[kept],
        map_at_r=np.bincount(codes, ranks.average_precision)[kept] / sizes[kept],
    )


def recall_at_k(
    vectors: ArrayLike, labels: ArrayLike, ks: Sequence[int] = (1, 2, 4, 8), *, metric: Metric = "cosine"
) -> dict[int, float]:
    """Recall@K: the fraction of queries with an image of their class among the K nearest others, for each K.

    >>> recall_at_k([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [1.0, 0.6]], [7, 7, 9, 9], ks=(1, 3))
    {1: 0.75, 3: 1.0}
    """
    return retrieval(vectors, labels, ks=ks, metric=metric).recall_at_k


def r_precision(vectors: ArrayLike, labels: ArrayLike, *, metric: Metric = "cosine") -> float:
    """R-precision: with R other images of the query's class, their fraction among the R nearest; the mean over queries."""
    return retrieval(vectors, labels, ks=(1,), metric=metric).r_precision


def map_at_r(vectors: ArrayLike, labels: ArrayLike, *, metric: Metric = "cosine") -> float:
    """MAP@R: (1/R)·Σ over ranks r ≤ R that hold a positive of the precision at r; the mean over queries."""
    return retrieval(vectors, labels, ks=(1,), metric=metric).map_at_r


def checked_ks(ks: Sequence[int], n_others: int) -> tuple[int, ...]:
    """The K of Recall@K in order; a ValueError for one above `n_others`, the images that a query can find."""
    if len(ks) == 0:
        raise ValueError("ks is empty: pass the K of Recall@K, for example (1, 2, 4, 8)")
    for k in ks:
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise ValueError(f"every K of Recall@K must be a whole number, at least 1; got {k!r}: (1, 2, 4, 8) is typical")
        if k > n_others:
            raise ValueError(f"K ({k}) exceeds the {n_others} images that a query can find: lower K, or pass more images")
    return tuple(sorted({int(k) for k in ks}))


def _split(n: int, query: ArrayLike | None, gallery: ArrayLike | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    everything = np.arange(n)
    if query is None and gallery is None:
        return everything, everything
    queries = everything if query is None else _rows(query, n, "query")
    others = everything if gallery is None else _rows(gallery, n, "gallery")
    if query is None:
        queries = np.setdiff1d(everything, others)
    elif gallery is None:
        others = np.setdiff1d(everything, queries)
    if len(queries) == 0 or len(others) == 0:
        raise ValueError(
            f"{n} rows were split into {len(queries)} queries and {len(others)} for the gallery: both need at least one"
        )
    return queries, others


def _rows(chosen: ArrayLike, n: int, name: str) -> NDArray[np.int64]:
    """A mask or row numbers as sorted, distinct row numbers."""
    array = np.asarray(chosen)
    if array.dtype == np.bool_ and array.shape == (n,):
        return np.flatnonzero(array)
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.size == 0:
        raise ValueError(
            f"{name} must be row numbers, or a mask of {n}; got {array.dtype} of shape {array.shape}: pass one of these"
        )
    rows = np.unique(array)
    if rows[0] < 0 or rows[-1] >= n:
        raise ValueError(f"{name} rows must lie between 0 and {n - 1}; got {rows[0]} to {rows[-1]}: pass rows of these vectors")
    return rows.astype(np.int64)
