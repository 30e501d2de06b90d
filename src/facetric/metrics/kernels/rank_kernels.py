"""The kernels behind `neighbors`: sort a query's positives, count the other images between them, read off the ranks.

A key is what orders neighbors: ‖x − y‖² for Euclidean, −x·y for cosine, in float64; equal keys go to the lowest position.
Kernels work on one block of queries, release the GIL, and write to nothing shared.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray


class Gallery(NamedTuple):
    """The images that are searched, n of them, as the kernels take them."""

    vectors: NDArray[np.float32]  # (n, d)
    rows: NDArray[np.int64]  # (n,) position in the gallery → row of the caller's array
    classes: NDArray[np.int64]  # (n,)
    members: NDArray[np.int64]  # (n,) positions, class by class, in order
    first_member: NDArray[np.int64]  # (n_classes + 1,)
    euclidean: bool


class Queries(NamedTuple):
    """A block of m queries, their positives from near to far, and the images counted so far between them."""

    vectors: NDArray[np.float32]  # (m, d)
    rows: NDArray[np.int64]  # (m,)
    classes: NDArray[np.int64]  # (m,)
    squares: NDArray[np.float64]  # (m,) product + this = key, but for rounding
    slack: NDArray[np.float64]  # (m,) γ, the rounding bound
    first_positive: NDArray[np.int64]  # (m + 1,) query → its first entry in the next three
    keys: NDArray[np.float64]
    positions: NDArray[np.int64]
    counts: NDArray[np.int64]  # images of other classes between this positive and the one before
    last: NDArray[np.int64]  # (m,) the farthest positive that may still be among the R nearest
    n_before: NDArray[np.int64]  # (m,) images of other classes before that one
    cutoff: NDArray[np.float32]  # (m,) a product above this is certainly farther than that one; −∞: nothing left to find


@njit(cache=True, nogil=True)
def exact_key(x: NDArray[np.float32], y: NDArray[np.float32], euclidean: bool) -> float:
    """The key of y for the query x. Four sums in a fixed order: equal vectors have equal keys, wherever they lie."""
    a = b = c = d = 0.0
    n_whole = len(x) // 4 * 4
    if euclidean:
        for i in range(0, n_whole, 4):
            a += (np.float64(x[i]) - np.float64(y[i])) ** 2
            b += (np.float64(x[i + 1]) - np.float64(y[i + 1])) ** 2
            c += (np.float64(x[i + 2]) - np.float64(y[i + 2])) ** 2
            d += (np.float64(x[i + 3]) - np.float64(y[i + 3])) ** 2
        for i in range(n_whole, len(x)):
            a += (np.float64(x[i]) - np.float64(y[i])) ** 2
    else:
        for i in range(0, n_whole, 4):
            a -= np.float64(x[i]) * np.float64(y[i])
            b -= np.float64(x[i + 1]) * np.float64(y[i + 1])
            c -= np.float64(x[i + 2]) * np.float64(y[i + 2])
            d -= np.float64(x[i + 3]) * np.float64(y[i + 3])
        for i in range(n_whole, len(x)):
            a -= np.float64(x[i]) * np.float64(y[i])
    return (a + b) + (c + d)


@njit(cache=True, nogil=True)
def sort_positives(queries: Queries, gallery: Gallery) -> None:
    """Fill keys and positions of every query's positives, nearest first, and set its cutoff to the farthest."""
    for q in range(len(queries.rows)):
        start, stop = queries.first_positive[q], queries.first_positive[q + 1]
        queries.cutoff[q] = -np.inf
        if start == stop:
            continue
        own_class = queries.classes[q]
        entry = start
        for member in range(gallery.first_member[own_class], gallery.first_member[own_class + 1]):
            position = gallery.members[member]
            if gallery.rows[position] != queries.rows[q]:
                queries.positions[entry] = position
                queries.keys[entry] = exact_key(queries.vectors[q], gallery.vectors[position], gallery.euclidean)
                entry += 1
        order = np.argsort(queries.keys[start:stop], kind="mergesort")  # stable: equal keys stay in order of position
        queries.keys[start:stop] = queries.keys[start:stop][order]
        queries.positions[start:stop] = queries.positions[start:stop][order]
        _set_cutoff(q, queries)


@njit(cache=True, nogil=True)
def count_others(products: NDArray[np.float32], first: int, max_rank: int, queries: Queries, gallery: Gallery) -> None:
    """Count the images first, first + 1, … of other classes into the gaps between positives. products: (m, n_tile)"""
    for q in range(len(queries.rows)):
        row = products[q]
        if not _n_within(row, queries.cutoff[q]):  # nearly always
            continue
        for j in range(len(row)):
            if row[j] <= queries.cutoff[q] and gallery.classes[first + j] != queries.classes[q]:
                _count(q, first + j, row[j], max_rank, queries, gallery)


@njit(cache=True, nogil=True)
def _n_within(row: NDArray[np.float32], cutoff: float) -> int:
    """How many are at most the cutoff; a sum over a whole contiguous row is vectorized."""
    n = np.int32(0)  # of the width of a float, so that as many fit in a register
    for j in range(len(row)):
        n += np.int32(row[j] <= cutoff)
    return int(n)


@njit(cache=True, nogil=True)
def _count(q: int, position: int, product: float, max_rank: int, queries: Queries, gallery: Gallery) -> None:
    """Put one image of another class into its gap, and forget the positives that it pushes out of the R nearest."""
    start, stop = queries.first_positive[q], queries.first_positive[q + 1]
    keys = queries.keys[start : start + queries.last[q] + 1]
    key, slack = np.float64(product) + queries.squares[q], queries.slack[q]
    gap = np.searchsorted(keys, key - slack)
    if gap < len(keys) and keys[gap] <= key + slack:  # rounding could have moved it past a positive
        key = exact_key(queries.vectors[q], gallery.vectors[position], gallery.euclidean)
        gap = np.searchsorted(keys, key)
        n_tied = np.searchsorted(keys[gap:], key, side="right")
        gap += np.searchsorted(queries.positions[start + gap : start + gap + n_tied], position)
    if gap == len(keys):
        return
    queries.counts[start + gap] += 1
    n_before, last = queries.n_before[q] + 1, queries.last[q]
    while last > 0 and last + 1 + n_before > stop - start:
        n_before -= queries.counts[start + last]
        last -= 1
    queries.n_before[q] = n_before
    if last == 0 and 1 + n_before > max(stop - start, max_rank):
        queries.cutoff[q] = -np.inf
    elif last != queries.last[q]:
        queries.last[q] = last
        _set_cutoff(q, queries)
    queries.last[q] = last


@njit(cache=True, nogil=True)
def _set_cutoff(q: int, queries: Queries) -> None:
    farthest = queries.keys[queries.first_positive[q] + queries.last[q]] + queries.slack[q] - queries.squares[q]
    rounded = np.float32(farthest)  # to nearest: widened, it covers what rounding took
    queries.cutoff[q] = rounded + np.float32(abs(rounded) * np.float32(2.0**-22)) + np.float32(1e-37)


@njit(cache=True, nogil=True)
def read_ranks(
    max_rank: int,
    queries: Queries,
    first_rank: NDArray[np.int64],
    r_precision: NDArray[np.float64],
    average_precision: NDArray[np.float64],
) -> None:
    """From the counts: the rank of the nearest positive, R-precision and AP@R of every query of the block."""
    for q in range(len(queries.rows)):
        start, n_positives = queries.first_positive[q], queries.first_positive[q + 1] - queries.first_positive[q]
        if n_positives == 0:
            continue
        first_rank[q] = min(1 + queries.counts[start], max_rank + 1)
        n_others, n_found, precision_sum = 0, 0, 0.0
        for r in range(queries.last[q] + 1):
            n_others += queries.counts[start + r]
            rank = r + 1 + n_others
            if rank > n_positives:
                break
            n_found += 1
            precision_sum += (r + 1) / rank
        r_precision[q] = n_found / n_positives
        average_precision[q] = precision_sum / n_positives
