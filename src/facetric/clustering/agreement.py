"""How far clusters agree with classes, pair by pair and point by point."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from facetric.metrics.contingency import contingency
from facetric.metrics.precision_recall import PrecisionRecall, bcubed, pairwise


@dataclass(frozen=True)
class Agreement:
    """How far clusters agree with classes. Pairs count large classes by their square; BCubed averages over points."""

    pairwise_precision: float  # of two photos in one cluster, how often are they of one class?
    pairwise_recall: float  # of two photos of one class, how often are they in one cluster?
    bcubed_precision: float
    bcubed_recall: float

    @property
    def bcubed_f1(self) -> float:
        return PrecisionRecall(self.bcubed_precision, self.bcubed_recall).f1

    @property
    def pairwise_f1(self) -> float:
        return PrecisionRecall(self.pairwise_precision, self.pairwise_recall).f1

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
        return cls(*pairwise(table), *bcubed(table))

    @classmethod
    def mean(cls, agreements: Iterable[Agreement]) -> Agreement:
        """The mean of every score."""
        scores = list(agreements)
        return cls(*(float(np.mean([getattr(score, field.name) for score in scores])) for field in fields(cls)))
