"""The contingency table of two labelings: how many points carry label r in one and label c in the other. Precision and recall.

Every clustering score of this package is a function of this table and of nothing else, which is what makes all of them
invariant to the names of the labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Contingency:
    """The non-zero cells of a contingency table, with its margins. Sparse, so that 10,000 clusters stay cheap."""

    cells: NDArray[np.int64]  # (n_cells,) the non-zero counts
    cell_rows: NDArray[np.int64]  # (n_cells,) the row of each
    cell_columns: NDArray[np.int64]  # (n_cells,) the column of each

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Row sums: the cluster sizes of the first labeling. (n_rows,)"""
        return np.bincount(self.cell_rows, self.cells).astype(np.int64)

    @cached_property
    def columns(self) -> NDArray[np.int64]:
        """Column sums: the cluster sizes of the second. (n_columns,)"""
        return np.bincount(self.cell_columns, self.cells).astype(np.int64)

    @property
    def n_points(self) -> int:
        return int(self.cells.sum())

    def dense(self) -> NDArray[np.int64]:
        """The table as a (n_rows, n_columns) array."""
        table = np.zeros((len(self.rows), len(self.columns)), dtype=np.int64)
        table[self.cell_rows, self.cell_columns] = self.cells
        return table


def label_codes(labels: ArrayLike, name: str = "labels") -> NDArray[np.int64]:
    """Labels of any integer (or string) encoding as codes 0, 1, 2, … in sorted order of the labels. (n,)"""
    array = np.asarray(labels)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, one label per point; got shape {array.shape}: flatten it first")
    if array.size == 0:
        raise ValueError(f"{name} is empty: pass at least one label")
    if array.dtype.kind not in "iubUS":
        raise ValueError(
            f"{name} must be integers (any encoding) or strings; got dtype {array.dtype}: "
            "convert them, for example with .astype(int)"
        )
    codes: NDArray[np.int64] = np.unique(array, return_inverse=True)[1].astype(np.int64)
    return codes


def contingency(labels_true: ArrayLike | Contingency, labels_pred: ArrayLike | None = None) -> Contingency:
    """The table of two labelings, or of one ready-made table of counts; one of these is itself.

    >>> contingency([0, 0, 1, 1], [5, 5, 5, 9]).dense()
    array([[2, 0],
           [1, 1]])
    """
    if isinstance(labels_true, Contingency):
        return labels_true
    if labels_pred is None:
        return _from_table(labels_true)
    rows = label_codes(labels_true, "labels_true")
    columns = label_codes(labels_pred, "labels_pred")
    if len(rows) != len(columns):
        raise ValueError(
            f"both labelings must cover the same points; got {len(rows)} and {len(columns)} labels: "
            "pass two arrays of the same length"
        )
    n_columns = int(columns.max()) + 1
    pairs, cells = np.unique(rows * n_columns + columns, return_counts=True)
    return Contingency(cells.astype(np.int64), pairs // n_columns, pairs % n_columns)


def _from_table(table: ArrayLike) -> Contingency:
    array = np.asarray(table)
    if array.ndim != 2:
        raise ValueError(
            f"a contingency table has two dimensions; got shape {array.shape}: pass a table of counts, or two arrays of labels"
        )
    if array.dtype.kind not in "iu":
        raise ValueError(f"a contingency table holds integer counts; got dtype {array.dtype}: pass counts, not frequencies")
    if array.size > 0 and array.min() < 0:
        raise ValueError(f"counts cannot be negative; the table holds {array.min()}: pass counts of points")
    if array.sum() == 0:
        raise ValueError("the contingency table counts no points: pass a table with at least one")
    rows, columns = array.sum(axis=1), array.sum(axis=0)
    array = array[rows > 0][:, columns > 0].astype(np.int64)
    cell_rows, cell_columns = np.nonzero(array)
    return Contingency(array[cell_rows, cell_columns], cell_rows, cell_columns)


class PrecisionRecall(NamedTuple):
    """Precision falls when classes are mixed in a cluster, recall when a class is split among clusters."""

    precision: float
    recall: float

    @property
    def f1(self) -> float:
        """The harmonic mean."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def precision_recall(
    labels_true: ArrayLike | Contingency, labels_pred: ArrayLike | None = None
) -> tuple[PrecisionRecall, PrecisionRecall]:
    """:func:`pairwise` and :func:`bcubed`, from one table."""
    table = contingency(labels_true, labels_pred)
    together, of_class, of_cluster = (float((n * (n - 1)).sum()) for n in (table.cells, table.rows, table.columns))
    pairs = PrecisionRecall(together / of_cluster if of_cluster else 1.0, together / of_class if of_class else 1.0)
    squares = table.cells.astype(np.float64) ** 2
    precision = (squares / table.columns[table.cell_columns]).sum() / table.n_points
    return pairs, PrecisionRecall(float(precision), float((squares / table.rows[table.cell_rows]).sum() / table.n_points))


def pairwise(labels_true: ArrayLike, labels_pred: ArrayLike | None = None) -> PrecisionRecall:
    """Of the pairs in one cluster, the fraction of one class; of the pairs of one class, the fraction in one cluster.

    1 where there is no such pair. Large classes count by the square of their size.

    >>> pairwise([0, 0, 1, 1], [5, 5, 5, 9])
    PrecisionRecall(precision=0.3333333333333333, recall=0.5)
    """
    return precision_recall(labels_true, labels_pred)[0]


def bcubed(labels_true: ArrayLike, labels_pred: ArrayLike | None = None) -> PrecisionRecall:
    """Averages over points: the fraction of a point's cluster that is of its class, and of its class that is in its cluster.

    A point counts itself, so a point that is alone in its cluster has precision 1.

    >>> bcubed([0, 0, 1, 1], [5, 5, 5, 9])
    PrecisionRecall(precision=0.6666666666666666, recall=0.75)
    """
    return precision_recall(labels_true, labels_pred)[1]
