"""Scores of a clustering from the sums of its contingency table, for compiled code (agreement.py says which sums)."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

NMI, VMEASURE, AMI, ARI, F1, ZERO_ONE = range(6)
SCORES = {"nmi": NMI, "vmeasure": VMEASURE, "ami": AMI, "ari": ARI, "f1": F1, "zero_one": ZERO_ONE}

_NO_ENTROPY = 1e-12  # nats; the smallest non-zero entropy of n points is about log(n)/n, far above this


@njit(cache=True, nogil=True)
def phi(score: int, x: float) -> float:
    """φ(x): x·log x for NMI, V-measure and AMI; the number of pairs among x points for ARI and F1."""
    if score <= AMI:
        return x * math.log(x) if x > 0 else 0.0
    return x * (x - 1.0) / 2.0


@njit(cache=True, nogil=True)
def phi_table(score: int, n: int) -> NDArray[np.float64]:
    """φ(0), φ(1), …, φ(n). (n + 1,)"""
    table = np.empty(n + 1)
    for x in range(n + 1):
        table[x] = phi(score, float(x))
    return table


@njit(cache=True, nogil=True, error_model="numpy")  # no check of divisors, so that a loop over many tables is vectorized
def agreement(score: int, n_points: int, total: float, cells: float, rows: float, columns: float, expected: float) -> float:
    """The score of a table with these sums of φ; total is φ(n_points), expected the expected mutual information (AMI only)."""
    if score <= AMI:
        mutual = (cells - rows - columns + total) / n_points
        rows_entropy = (total - rows) / n_points
        columns_entropy = (total - columns) / n_points
        if rows_entropy < _NO_ENTROPY or columns_entropy < _NO_ENTROPY:
            return 1.0 if rows_entropy < _NO_ENTROPY and columns_entropy < _NO_ENTROPY else 0.0
        if score == NMI:  # rounding must not push equal or independent partitions out of [0, 1]
            return min(max(mutual / math.sqrt(rows_entropy * columns_entropy), 0.0), 1.0)
        mean_entropy = (rows_entropy + columns_entropy) / 2.0
        if score == VMEASURE:
            return min(max(mutual / mean_entropy, 0.0), 1.0)
        if mean_entropy - expected < _NO_ENTROPY:  # both partitions are all singletons
            return 1.0
        return (mutual - expected) / (mean_entropy - expected)
    if score == ARI:
        chance = rows * columns / total if total > 0 else 0.0
        ceiling = (rows + columns) / 2.0
        return (cells - chance) / (ceiling - chance) if ceiling > chance else 1.0
    return 2.0 * cells / (rows + columns) if rows + columns > 0 else 1.0


@njit(cache=True, nogil=True)
def expected_mutual_information_term(row: int, column: int, n_points: int, log_factorial: NDArray[np.float64]) -> float:
    """The contribution of one (row sum, column sum) pair to the expected mutual information under random labeling.

    Vinh, Epps and Bailey 2010, equation 24a: the count in the cell is hypergeometric.
    """
    constant = (
        log_factorial[row]
        + log_factorial[column]
        + log_factorial[n_points - row]
        + log_factorial[n_points - column]
        - log_factorial[n_points]
    )
    term = 0.0
    for count in range(max(1, row + column - n_points), min(row, column) + 1):
        log_probability = constant - (
            log_factorial[count]
            + log_factorial[row - count]
            + log_factorial[column - count]
            + log_factorial[n_points - row - column + count]
        )
        term += count / n_points * math.log(n_points * count / (row * column)) * math.exp(log_probability)
    return term


@njit(cache=True, nogil=True)
def log_factorials(n: int) -> NDArray[np.float64]:
    """log 0!, log 1!, …, log n!. (n + 1,)"""
    table = np.empty(n + 1)
    for x in range(n + 1):
        table[x] = math.lgamma(x + 1.0)
    return table


@njit(cache=True, nogil=True)
def expected_mutual_information(rows: NDArray[np.int64], columns: NDArray[np.int64], n_points: int) -> NDArray[np.float64]:
    """For each row sum, its contribution to the expected mutual information with all columns. (n_rows,)

    Only distinct sums are computed: real tables repeat a few cluster sizes many times.
    """
    log_factorial = log_factorials(n_points)
    n_columns_of_size = np.bincount(columns)
    terms = np.zeros(len(rows))
    term_of_size = np.full(n_points + 1, -1.0)
    for r in range(len(rows)):
        row = rows[r]
        if term_of_size[row] < 0.0:
            term = 0.0
            if row > 0:
                for column in range(1, len(n_columns_of_size)):
                    if n_columns_of_size[column] > 0:
                        term += n_columns_of_size[column] * expected_mutual_information_term(row, column, n_points, log_factorial)
            term_of_size[row] = term
        terms[r] = term_of_size[row]
    return terms


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
