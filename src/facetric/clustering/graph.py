"""Sparse problems: from a graph of costs, directed or not, to the lists that the search walks along."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array  # type: ignore[import-untyped]

from facetric.clustering.state import Sparse


def symmetric_graph(graph: csr_array) -> csr_array:
    """Both directions of every edge, the cheaper where they differ, and an edge of cost 0 from every point to itself."""
    forward = csr_array(graph)
    forward.sum_duplicates()  # sorts the rows too
    backward = csr_array(forward.T)
    backward.sort_indices()
    n = forward.shape[0]
    room = len(forward.data) + len(backward.data) + n
    first, columns, costs = np.zeros(n + 1, np.int64), np.empty(room, np.int32), np.empty(room, np.float32)
    _merge(
        forward.indptr, forward.indices, forward.data.astype(np.float32),
        backward.indptr, backward.indices, backward.data.astype(np.float32),
        first, columns, costs,
    )  # fmt: skip
    return csr_array((costs[: first[-1]].copy(), columns[: first[-1]].copy(), first), shape=(n, n))


def sparse_problem(by_client: csr_array, caps: NDArray[np.float64], *, symmetric: bool = True) -> Sparse:
    """The problem whose row i holds the costs of client i at the facilities it can reach."""
    first = by_client.indptr.astype(np.int64)
    facilities, costs = by_client.indices.astype(np.int32), by_client.data.astype(np.float32)
    _sort_rows(first, facilities, costs)
    if symmetric:
        return Sparse(first, facilities, costs, first, facilities, costs, caps)
    by_facility = csr_array(csr_array((costs, facilities, first), shape=by_client.shape).T)
    return Sparse(
        by_facility.indptr.astype(np.int64),
        by_facility.indices.astype(np.int32),
        by_facility.data,
        first,
        facilities,
        costs,
        caps,
    )


@njit(cache=True, nogil=True)
def _merge(
    a_first: NDArray[np.int64],
    a_columns: NDArray[np.int32],
    a_costs: NDArray[np.float32],
    b_first: NDArray[np.int64],
    b_columns: NDArray[np.int32],
    b_costs: NDArray[np.float32],
    first: NDArray[np.int64],
    columns: NDArray[np.int32],
    costs: NDArray[np.float32],
) -> None:
    """The union of two arrays with sorted rows, the smaller value where both have one; the diagonal is 0."""
    end = 0
    for row in range(len(first) - 1):
        columns[end], costs[end] = row, 0.0
        end += 1
        a, b = a_first[row], b_first[row]
        while a < a_first[row + 1] or b < b_first[row + 1]:
            has_a, has_b = a < a_first[row + 1], b < b_first[row + 1]
            take_a = has_a and (not has_b or a_columns[a] <= b_columns[b])
            take_b = has_b and (not has_a or b_columns[b] <= a_columns[a])
            cost = np.float32(np.inf)
            column = row
            if take_a:
                column, cost = a_columns[a], a_costs[a]
                a += 1
            if take_b:
                column, cost = b_columns[b], min(cost, b_costs[b])
                b += 1
            if column != row:
                columns[end], costs[end] = column, cost
                end += 1
        first[row + 1] = end


@njit(cache=True, nogil=True)
def _sort_rows(first: NDArray[np.int64], columns: NDArray[np.int32], costs: NDArray[np.float32]) -> None:
    """Every row by cost; equal costs by column (rows come sorted by column, but for the diagonal in front)."""
    for row in range(len(first) - 1):
        start, stop = first[row], first[row + 1]
        by_column = np.argsort(columns[start:stop])
        row_columns, row_costs = columns[start:stop][by_column], costs[start:stop][by_column]
        order = np.argsort(row_costs, kind="mergesort")
        columns[start:stop], costs[start:stop] = row_columns[order], row_costs[order]
