"""How far clusters agree with classes, pair by pair and point by point."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from facetric.metrics.contingency import contingency


@dataclass(frozen=True)
class Agreement:
    """How far clusters agree with classes. Pairs count large classes by their square; BCubed averages over points."""

    pairwise_precision: float  # of two photos in one cluster, how often are they of one class?
    pairwise_recall: float  # of two photos of one class, how often are they in one cluster?
    bcubed_precision: float
    bcubed_recall: float

    @property
    def bcubed_f1(self) -> float:
        return _f1(self.bcubed_precision, self.bcubed_recall)

    @property
    def pairwise_f1(self) -> float:
        return _f1(self.pairwise_precision, self.pairwise_recall)

    @property
    def score(self) -> float:
        """What settings are chosen by. BCubed alone would accept one giant cluster beside many points that are alone."""
        return (self.bcubed_f1 + self.pairwise_f1) / 2

    @classmethod
    def of(cls, classes: ArrayLike, clusters: ArrayLike) -> Agreement:
        """Scores of one clustering.

        >>> Agreement.of([0, 0, 0, 1], [7, 7, 8, 8])  # doctest: +ELLIPSIS
        Agreement(pairwise_precision=0.5, pairwise_recall=0.333..., bcubed_precision=0.75, bcubed_recall=0.666...)
        """
        table = contingency(classes, clusters)
        cells, rows, columns = (x.astype(np.float64) for x in (table.cells, table.rows, table.columns))
        together, of_class, of_cluster = (float((x * (x - 1)).sum()) for x in (cells, rows, columns))
        return cls(
            pairwise_precision=together / of_cluster if of_cluster else 1.0,
            pairwise_recall=together / of_class if of_class else 1.0,
            bcubed_precision=float((cells**2 / columns[table.cell_columns]).sum()) / table.n_points,
            bcubed_recall=float((cells**2 / rows[table.cell_rows]).sum()) / table.n_points,
        )

    @classmethod
    def mean(cls, agreements: Iterable[Agreement]) -> Agreement:
        """The mean of every score."""
        scores = list(agreements)
        return cls(*(float(np.mean([getattr(score, field.name) for score in scores])) for field in fields(cls)))


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
