"""Distances between the points of a batch, and what a matrix of them must fulfil."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.solver.kernels import inner_kernel
from facetric.solver.threads import use_threads

Distances = NDArray[np.floating]  # float32 or float64

_ROWS, _COLUMNS = 32, 128  # of a tile that stays in the nearest cache
_LONG = 500_000  # so many distances to compute are worth several threads
_LONG_SURVEY = 4_000_000  # to look at


def euclidean_distances(points: Distances, *, squared: bool = False, n_threads: int | None = None) -> Distances:
    """(m, m) from differences, not from dot products: exact for near and equal points, and exactly symmetric.

    In the precision of the points (m, d), float32 or float64. The number of threads never changes the result.

    >>> euclidean_distances(np.array([[0.0, 0.0], [3.0, 4.0]]))
    array([[0., 5.],
           [5., 0.]])
    """
    m, d = points.shape
    columns = np.zeros((-(-d // 8) * 8, m), points.dtype)  # zeros fill up the last eight dimensions
    columns[:d] = points.T
    rows = np.ascontiguousarray(columns.T)
    distances = np.empty((m, m), points.dtype)
    with use_threads(n_threads) as threads:
        piece = partial(_fill_piece, rows, columns, distances, squared)
        threads.run(piece, -(-m // _ROWS), alone=m * m < _LONG)
    return distances


def largest_distance(distances: Distances, *, n_threads: int | None = None) -> float:
    """The largest entry, or NaN if there is one that is negative, infinite or NaN."""
    infinity = np.array(np.inf, distances.dtype)
    bits = distances.view(f"u{infinity.itemsize}")  # of numbers ≥ 0 in their order; of all others, larger than any
    with use_threads(n_threads) as threads:
        found = threads.run(lambda _, first, last: bits[first:last].max(), len(bits), alone=bits.size < _LONG_SURVEY)
    largest = max(found)
    return float(largest.view(distances.dtype)) if largest < infinity.view(bits.dtype) else math.nan


def _fill_piece(
    rows: Distances, columns: Distances, distances: Distances, squared: bool, thread: int, first: int, last: int
) -> None:
    _fill(rows, columns, distances, squared, first, last)


@njit(cache=True, nogil=True)
def _fill(rows: Distances, columns: Distances, distances: Distances, squared: bool, first: int, last: int) -> None:
    """The tiles of some blocks of rows, from the diagonal to the right, and their mirror images below it."""
    m = len(rows)
    squares = np.empty((_ROWS, _COLUMNS), rows.dtype)
    for block in range(first, last):
        top = block * _ROWS
        n_rows = min(_ROWS, m - top)
        for left in range(top // _COLUMNS * _COLUMNS, m, _COLUMNS):
            n_columns = min(_COLUMNS, m - left)
            squares[:] = 0.0
            for k in range(0, len(columns), 8):
                _add_squares(rows[top : top + n_rows], columns[k : k + 8], k, left, left + n_columns, squares)
            for r in range(n_rows):
                out, row = distances[top + r, left : left + n_columns], squares[r, :n_columns]
                for c in range(n_columns):
                    row[c] = row[c] if squared else np.sqrt(row[c])
                    out[c] = row[c]
            for c in range(max(0, top + n_rows - left), n_columns):
                out = distances[left + c, top : top + n_rows]
                for r in range(n_rows):
                    out[r] = squares[r, c]


@inner_kernel(fastmath=frozenset({"contract"}))
def _add_squares(rows: Distances, columns: Distances, k: int, left: int, right: int, squares: Distances) -> None:
    """Eight dimensions from k on at once, so that the sums stay in registers for as long."""
    y0, y1, y2, y3 = columns[0, left:right], columns[1, left:right], columns[2, left:right], columns[3, left:right]
    y4, y5, y6, y7 = columns[4, left:right], columns[5, left:right], columns[6, left:right], columns[7, left:right]
    for r in range(len(rows)):
        x0, x1, x2, x3 = rows[r, k], rows[r, k + 1], rows[r, k + 2], rows[r, k + 3]
        x4, x5, x6, x7 = rows[r, k + 4], rows[r, k + 5], rows[r, k + 6], rows[r, k + 7]
        out = squares[r, : right - left]
        for c in range(len(out)):
            total = out[c]
            total += (x0 - y0[c]) * (x0 - y0[c])
            total += (x1 - y1[c]) * (x1 - y1[c])
            total += (x2 - y2[c]) * (x2 - y2[c])
            total += (x3 - y3[c]) * (x3 - y3[c])
            total += (x4 - y4[c]) * (x4 - y4[c])
            total += (x5 - y5[c]) * (x5 - y5[c])
            total += (x6 - y6[c]) * (x6 - y6[c])
            total += (x7 - y7[c]) * (x7 - y7[c])
            out[c] = total


@njit(cache=True, nogil=True)
def is_symmetric(distances: Distances) -> bool:
    """Tile by tile, up to the first difference."""
    m = len(distances)
    for top in range(0, m, _ROWS):
        for left in range(0, top + 1, _ROWS):
            for i in range(top, min(top + _ROWS, m)):
                for j in range(left, min(left + _ROWS, m)):
                    if distances[i, j] != distances[j, i]:
                        return False
    return True
