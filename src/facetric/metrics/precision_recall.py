"""Precision and recall of clusters: over pairs of points, and over points (BCubed, Bagga and Baldwin 1998)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from facetric.metrics.contingency import Contingency, contingency


class PrecisionRecall(NamedTuple):
    """Precision falls when classes are mixed in a cluster, recall when a class is split among clusters."""

    precision: float
    recall: float

    @property
    def f1(self) -> float:
        """The harmonic mean."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def pairwise(labels_true: ArrayLike | Contingency, labels_pred: ArrayLike | None = None) -> PrecisionRecall:
    """Of the pairs in one cluster, the fraction of one class; of the pairs of one class, the fraction in one cluster.

    1 where there is no such pair. Large classes count by the square of their size.

    >>> pairwise([0, 0, 1, 1], [5, 5, 5, 9])
    PrecisionRecall(precision=0.3333333333333333, recall=0.5)
    """
    table = contingency(labels_true, labels_pred)
    together, of_class, of_cluster = (float((n * (n - 1)).sum()) for n in (table.cells, table.rows, table.columns))
    return PrecisionRecall(together / of_cluster if of_cluster else 1.0, together / of_class if of_class else 1.0)


def bcubed(labels_true: ArrayLike | Contingency, labels_pred: ArrayLike | None = None) -> PrecisionRecall:
    """Averages over points: the fraction of a point's cluster that is of its class, and of its class that is in its cluster.

    A point counts itself, so a point that is alone in its cluster has precision 1.

    >>> bcubed([0, 0, 1, 1], [5, 5, 5, 9])
    PrecisionRecall(precision=0.6666666666666666, recall=0.75)
    """
    table = contingency(labels_true, labels_pred)
    squares = table.cells.astype(np.float64) ** 2
    precision = (squares / table.columns[table.cell_columns]).sum() / table.n_points
    return PrecisionRecall(float(precision), float((squares / table.rows[table.cell_rows]).sum() / table.n_points))
