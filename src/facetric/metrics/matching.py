"""The best one-to-one matching of the rows of a table with its columns (linear assignment, for the zero-one margin)."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def matched_points(table: NDArray[np.int64]) -> int:
    """The largest number of points in cells (r, c) of which no two share a row or a column.

    The Hungarian method by shortest augmenting paths with potentials (Jonker and Volgenant 1987), O(n³), on integers: exact.
    """
    if table.shape[0] > table.shape[1]:
        table = table.T
    n_rows, n_columns = table.shape
    largest = table.max()
    # Legend: index 0 is a virtual row and column; cost[r, c] = largest − table[r, c] ≥ 0.
    row_potential = np.zeros(n_rows + 1, dtype=np.int64)
    column_potential = np.zeros(n_columns + 1, dtype=np.int64)
    row_of_column = np.zeros(n_columns + 1, dtype=np.int64)
    previous_column = np.zeros(n_columns + 1, dtype=np.int64)
    for row in range(1, n_rows + 1):
        row_of_column[0] = row
        column = 0
        shortest = np.full(n_columns + 1, np.iinfo(np.int64).max)
        visited = np.zeros(n_columns + 1, dtype=np.bool_)
        while True:
            visited[column] = True
            current_row = row_of_column[column]
            step = np.iinfo(np.int64).max
            next_column = 0
            for c in range(1, n_columns + 1):
                if visited[c]:
                    continue
                reduced = largest - table[current_row - 1, c - 1] - row_potential[current_row] - column_potential[c]
                if reduced < shortest[c]:
                    shortest[c] = reduced
                    previous_column[c] = column
                if shortest[c] < step:
                    step = shortest[c]
                    next_column = c
            for c in range(n_columns + 1):
                if visited[c]:
                    row_potential[row_of_column[c]] += step
                    column_potential[c] -= step
                else:
                    shortest[c] -= step
            column = next_column
            if row_of_column[column] == 0:
                break
        while column != 0:
            row_of_column[column] = row_of_column[previous_column[column]]
            column = previous_column[column]
    n_matched = 0
    for c in range(1, n_columns + 1):
        if row_of_column[c] > 0:
            n_matched += table[row_of_column[c] - 1, c - 1]
    return n_matched
