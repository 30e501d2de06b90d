"""The problem (∗) of the paper's clustering loss, and its solution: max over S of A(S) = F(X, S) + γ·Δ(g(S), y*)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facetric.losses.solver.compiled import Distances
from facetric.losses.solver.distances import euclidean_distances, is_symmetric, largest_distance
from facetric.losses.solver.margin import Margin, compiled_margin, count, delta, margin_tables
from facetric.metrics import label_codes
from facetric.metrics.kernels import SCORES

MarginFunction = Callable[[NDArray[np.int64]], float]

# Objectives closer than this share of their largest possible size are equal. It is a thousand times the rounding of the
# sums behind them, so that which of two tied medoids wins never depends on the order of additions.
TIE_TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class ClusteringProblem:
    """A batch of m points, the distances between them, their true classes, and what a wrong clustering is worth.

    * ``distances`` (m, m): entry [i, j] is the distance from point i to point j as a medoid; finite, ≥ 0, zero diagonal.
    * ``labels`` (m,): the true classes y*, integers in any encoding. The number of medoids is the number of classes.
    * ``margin_weight``: γ ≥ 0.
    * ``margin``: the score behind Δ = 1 − score: "nmi", "vmeasure", "ami", "ari", "f1", "zero_one" (accuracy under the
      best matching of clusters to classes), or a callable that maps a contingency table of counts, clusters × classes, to a
      score that is 1 for a perfect clustering. It must not depend on the order of rows or columns. Scores are clipped to [0, 1].
    """

    distances: Distances
    labels: NDArray[np.int64]
    margin_weight: float = 1.0
    margin: str | MarginFunction = "nmi"
    classes: NDArray[np.int64] = field(init=False, repr=False)  # (m,) labels as codes 0 … n_clusters − 1
    largest_distance: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        distances, largest = _checked_distances(self.distances)
        labels = np.asarray(self.labels)
        codes = label_codes(labels)
        if len(codes) != len(distances):
            raise ValueError(
                f"labels must have one entry per point; got {len(codes)} labels for a ({len(distances)}, {len(distances)}) "
                "distance matrix: pass the labels of the same batch"
            )
        check_margin(self.margin)
        weight = nonnegative("margin_weight (γ)", self.margin_weight, hint="use 0 for no margin")
        object.__setattr__(self, "distances", distances)
        object.__setattr__(self, "largest_distance", largest)
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "classes", codes)
        object.__setattr__(self, "margin_weight", weight)

    @classmethod
    def from_points(
        cls,
        points: Distances,
        labels: NDArray[np.int64],
        margin_weight: float = 1.0,
        margin: str | MarginFunction = "nmi",
        *,
        squared: bool = False,
    ) -> ClusteringProblem:
        """The problem of points (m, d) under their Euclidean distances, or the squares of these."""
        problem = cls(euclidean_distances(_checked_points(points), squared=squared), labels, margin_weight, margin)
        problem.__dict__["from_medoid"] = problem.distances  # symmetric by construction: no need to look
        return problem

    @property
    def n_points(self) -> int:
        return len(self.distances)

    @cached_property
    def n_clusters(self) -> int:
        """|Y|: the number of distinct classes in the batch, and of medoids in a solution."""
        return int(self.classes.max()) + 1

    @property
    def tolerance(self) -> float:
        """Two objectives nearer than this are equal; a tie goes to the lowest index."""
        return TIE_TOLERANCE * (self.n_points * self.largest_distance + self.margin_weight)

    @cached_property
    def from_medoid(self) -> Distances:
        """(m, m) row j: the distance of every point to medoid j, contiguous for the kernels."""
        return self.distances if is_symmetric(self.distances) else np.ascontiguousarray(self.distances.T)

    @cached_property
    def margin_tables(self) -> Margin:
        return margin_tables(self.margin, self.classes)

    def facility_score(self, medoid_of: NDArray[np.int64]) -> float:
        """F of the clustering that gives point i to medoid medoid_of[i], summed in float64."""
        return -float(self.distances[np.arange(self.n_points), medoid_of].astype(np.float64).sum())


@dataclass(frozen=True, eq=False)
class Solution:
    """A set of medoids S, the clustering it induces, and how it was reached."""

    medoids: NDArray[np.int64]  # (n_clusters,) S, as indices of points, in order of position
    assignment: NDArray[np.int64]  # (m,) g(S): for each point the position of its medoid in `medoids`
    facility_score: float  # F(X, S)
    margin: float  # Δ(g(S), y*)
    objective: float  # A(S) = F + γ·Δ
    n_sweeps: int  # sweeps of the refinement that were run, the last one without a change unless stopped by max_sweeps
    trace: tuple[float, ...]  # A(S) after the initialization and after every sweep


def solution_of(
    problem: ClusteringProblem, medoids: NDArray[np.int64], assignment: NDArray[np.int64], trace: tuple[float, ...] = ()
) -> Solution:
    """The record of these medoids; `trace` is A(S) before and after each sweep, if there was a refinement."""
    facility_score = problem.facility_score(medoids[assignment])
    with compiled_margin(problem) as margin:
        counts = count(margin, assignment.astype(np.uint32), problem.n_clusters)
        margin_value = float(delta(margin, counts, problem.n_clusters))
    objective = facility_score + problem.margin_weight * margin_value
    n_sweeps = max(len(trace) - 1, 0)
    return Solution(medoids, assignment, facility_score, margin_value, objective, n_sweeps, trace or (objective,))


def check_margin(margin: object) -> None:
    """Refuse an unknown margin before any work is done."""
    if not callable(margin) and not (isinstance(margin, str) and margin in SCORES):
        raise ValueError(f"margin must be one of {', '.join(SCORES)} or a callable; got {margin!r}: choose one of these")


def nonnegative(name: str, value: Any, *, hint: str) -> float:
    """A finite number, 0 or more."""
    if not _is_a(value, int | float | np.number) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} must be a finite number, 0 or more; got {value!r}: {hint}")
    return float(value)


def whole(name: str, value: Any, *, at_least: int, hint: str) -> int:
    """An integer that is not below `at_least`."""
    if not _is_a(value, int | np.integer) or value < at_least:
        raise ValueError(f"{name} must be a whole number, {at_least} or more; got {value!r}: {hint}")
    return int(value)


def _is_a(value: Any, kinds: Any) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool | np.bool_ | complex | np.complexfloating)


def _checked_points(points: ArrayLike) -> Distances:
    """(m, d) in float32 if they are, else in float64."""
    try:
        array = np.asarray(points)
    except (TypeError, ValueError):
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "fiu" or array.ndim != 2:
        raise ValueError(
            f"points must be an (m, d) array of numbers; got {array.dtype} of shape {array.shape}: pass one row per image"
        )
    return np.asarray(array, dtype=np.float32 if array.dtype.type is np.float32 else np.float64)


def _checked_distances(distances: ArrayLike) -> tuple[Distances, float]:
    """The distances in the kernels' layout, and the largest of them."""
    kept = np.float32 if getattr(distances, "dtype", None) == np.float32 else np.float64
    try:
        array = np.require(distances, kept, ["C", "W"])
    except (TypeError, ValueError):
        raise ValueError("distances must be a square matrix of numbers: pass an (m, m) array") from None
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise ValueError(f"distances must be a square matrix; got shape {array.shape}: pass all m × m distances of the batch")
    if len(array) < 1:
        raise ValueError("clustering needs at least 1 point; got none: pass the distances of a batch")
    largest = largest_distance(array)
    if math.isnan(largest):
        largest = _refuse_bad_entries(array)
    diagonal = array.diagonal()
    if diagonal.any():
        i = int(np.flatnonzero(diagonal)[0])
        raise ValueError(
            f"a point is at distance 0 from itself; entry [{i}, {i}] is {diagonal[i]}: np.fill_diagonal(distances, 0) first"
        )
    return array, largest


def _refuse_bad_entries(array: Distances) -> float:
    """Say which entry is not finite or negative; the largest if it is only a negative zero."""
    if not np.isfinite(array).all():
        i, j = np.argwhere(~np.isfinite(array))[0]
        raise ValueError(
            f"distances must be finite; entry [{i}, {j}] is {array[i, j]}: look for NaN or infinite embeddings in the batch"
        )
    if array.min() < 0:
        i, j = np.argwhere(array < 0)[0]
        raise ValueError(f"distances must not be negative; entry [{i}, {j}] is {array[i, j]}: pass distances, not similarities")
    return float(array.max())
