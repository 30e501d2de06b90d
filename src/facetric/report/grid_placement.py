"""From scattered points to a grid: every image moves to the free cell nearest to its point, so that none covers another."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

_FREE_EDGE = 0.04  # of the grid, on every side: room for the groups at the edge to spread
_LARGEST_ASPECT = 2.0  # a map wider than this is stretched


@dataclass(frozen=True, eq=False)
class GridPlacement:
    """Which cell every point got. Cell (column, row) is the unit square around the point (column, row)."""

    points: NDArray[np.float64]  # (n, 2) the positions in units of cells, x to the right and y downwards
    cells: NDArray[np.int64]  # (n, 2) column and row; no two are equal
    n_columns: int
    n_rows: int


def place_on_grid(positions: NDArray[np.floating], *, fill: float = 0.4) -> GridPlacement:
    """Place points (n, 2) on a grid that has n / `fill` cells and about the shape of the cloud.

    Points are placed in order of their distance from the middle of their cell, ties by index; each takes the nearest free cell,
    ties by row, then column. So no cell that stays free is nearer to a point than its own.
    """
    positions = np.asarray(positions, dtype=np.float64)
    if positions.ndim != 2 or positions.shape[1] != 2 or len(positions) == 0:
        raise ValueError(f"positions must have shape (n, 2) with n > 0; got {positions.shape}: pass one point per image")
    if not np.isfinite(positions).all():
        raise ValueError("positions must be finite, but some are NaN or infinite: check the vectors that were mapped")
    if not 0 < fill <= 1:
        raise ValueError(f"fill is the fraction of cells that hold an image, above 0 and at most 1; got {fill}: 0.4 is typical")
    low = positions.min(axis=0)
    width, height = positions.max(axis=0) - low
    n_columns, n_rows = _shape(len(positions), width, height, fill)
    points = np.empty_like(positions)
    for axis, (extent, n_cells) in enumerate(((width, n_columns), (height, n_rows))):
        if extent > 0:
            free = _FREE_EDGE * (n_cells - 1)
            points[:, axis] = free + (positions[:, axis] - low[axis]) * ((n_cells - 1 - 2 * free) / extent)
        else:
            points[:, axis] = (n_cells - 1) / 2
    points[:, 1] = n_rows - 1 - points[:, 1]  # pictures count rows from the top
    off_middle = np.hypot(*(points - np.rint(points)).T)
    order = np.argsort(off_middle, kind="stable")
    return GridPlacement(points, _nearest_free_cells(points, order, n_columns, n_rows), n_columns, n_rows)


def _shape(n: int, width: float, height: float, fill: float) -> tuple[int, int]:
    aspect = width / height if width > 0 and height > 0 else 1.0
    aspect = min(max(aspect, 1 / _LARGEST_ASPECT), _LARGEST_ASPECT)
    n_columns = max(1, math.ceil(math.sqrt(n / fill * aspect)))
    return n_columns, max(1, math.ceil(n / fill / n_columns))


@numba.njit(cache=True)
def _nearest_free_cells(points, order, n_columns, n_rows):  # type: ignore[no-untyped-def]
    """Search squares of growing radius around each point's own cell, until none further out can be nearer."""
    taken = np.zeros((n_rows, n_columns), dtype=np.bool_)
    cells = np.empty((len(points), 2), dtype=np.int64)
    for i in order:
        x, y = points[i, 0], points[i, 1]
        column, row = int(np.rint(x)), int(np.rint(y))
        nearest, best_row, best_column = np.inf, -1, -1
        radius = 0
        while radius - 0.5 <= nearest and radius <= n_columns + n_rows:  # a cell at this radius is at least radius − ½ away
            for r in range(max(0, row - radius), min(n_rows - 1, row + radius) + 1):
                edge = r in (row - radius, row + radius)
                stride = 1 if edge else 2 * radius  # the whole first and last row, else only the two ends
                for c in range(column - radius, column + radius + 1, max(1, stride)):
                    if c < 0 or c >= n_columns or taken[r, c]:
                        continue
                    away = np.hypot(c - x, r - y)
                    if away < nearest or (away == nearest and (r, c) < (best_row, best_column)):
                        nearest, best_row, best_column = away, r, c
            radius += 1
        taken[best_row, best_column] = True
        cells[i, 0], cells[i, 1] = best_column, best_row
    return cells
