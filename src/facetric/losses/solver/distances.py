"""Distances between the points of a batch, and what a matrix of them must fulfil."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numba import njit

from facetric.losses.solver.compiled import Distances, inner_kernel, use_threads

_ROWS, _COLUMNS = 64, 64  # of a tile that stays in the nearest cache
_LONG = 2_000_000  # so many distances to compute are worth several threads
_LONG_SURVEY = 4_000_000  # to look at


def euclidean_distances(points: Distances, *, squared: bool = False, n_threads: int | None = None) -> Distances:
    """(m, m) from differences, not from dot products: exact for near and equal points, and exactly symmetric.

    In the precision of the points (m, d), float32 or float64. The number of threads never changes the result.

    >>> euclidean_distances(np.array([[0.0, 0.0], [3.0, 4.0]]))
    array([[0., 5.],
           [5., 0.]])
    """
    points = np.ascontiguousarray(points)
    m = len(points)
    distances = np.empty((m, m), points.dtype)
    with use_threads(n_threads) as threads:
        threads.run(partial(_fill, points, distances, squared), -(-m // _ROWS), alone=m * m < _LONG)
    return distances


def largest_distance(distances: Distances) -> float:
    """The largest entry, or NaN if there is one that is negative, infinite or NaN."""
    infinity = np.array(np.inf, distances.dtype)
    bits = distances.view(f"u{infinity.itemsize}")  # of numbers ≥ 0 in their order; of all others, larger than any
    with use_threads(None) as threads:
        largest = max(threads.run(lambda first, last: bits[first:last].max(), len(bits), alone=bits.size < _LONG_SURVEY))
    return float(largest.view(distances.dtype)) if largest < infinity.view(bits.dtype) else math.nan


@njit(cache=True, nogil=True)
def _fill(points: Distances, distances: Distances, squared: bool, first: int, last: int) -> None:
    """The tiles of some blocks of rows, on the diagonal and to the right of it, and their mirror images."""
    m, d = points.shape
    dim = -(-d // 8) * 8  # those that are too many stay zero
    rows = np.zeros((_ROWS, dim), points.dtype)
    columns = np.zeros((dim, _COLUMNS), points.dtype)
    squares = np.empty((_ROWS, _COLUMNS), points.dtype)
    for left in range(first * _ROWS // _COLUMNS * _COLUMNS, m, _COLUMNS):
        n_columns = min(_COLUMNS, m - left)
        for c in range(n_columns):
            for k in range(d):
                columns[k, c] = points[left + c, k]
        for top in range(first * _ROWS, min(last * _ROWS, left + n_columns), _ROWS):
            n_rows = min(_ROWS, m - top)
            rows[:n_rows, :d] = points[top : top + n_rows]
            squares[:] = 0.0
            for k in range(0, dim, 8):
                _add_squares(rows, columns[k : k + 8], squares, k)
            for r in range(n_rows):
                out, row = distances[top + r, left : left + n_columns], squares[r]
                for c in range(n_columns):
                    row[c] = row[c] if squared else np.sqrt(row[c])
                    out[c] = row[c]
            for c in range(max(0, top + n_rows - left), n_columns):
                out = distances[left + c, top : top + n_rows]
                for r in range(n_rows):
                    out[r] = squares[r, c]


@inner_kernel(fastmath=frozenset({"contract"}))
def _add_squares(rows: Distances, columns: Distances, squares: Distances, k: int) -> None:
    """Eight dimensions at once, so that the sums stay in registers for as long."""
    y0, y1, y2, y3 = columns[0], columns[1], columns[2], columns[3]
    y4, y5, y6, y7 = columns[4], columns[5], columns[6], columns[7]
    for r in range(_ROWS):
        x = rows[r, k : k + 8]
        x0, x1, x2, x3, x4, x5, x6, x7 = x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]
        out = squares[r]
        for c in range(_COLUMNS):
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
