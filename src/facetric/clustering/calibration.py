"""Which opening cost suits an embedding: chosen on labeled classes that it was not trained on.

λ is weighed against a sum over the points of a cluster, so the best λ depends on how many photos a class has, which nobody knows
of an unsorted pile. So the labeled classes are resampled into piles of several shapes, and the setting is chosen that does best
on average over the piles. What it reached there is what to expect. Average linkage is not weighed against a sum, and holds up
better when class sizes vary: it is offered under its name, for as many points as their distances fit in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import fcluster, linkage  # type: ignore[import-untyped]
from scipy.spatial.distance import pdist  # type: ignore[import-untyped]
from sklearn.base import ClusterMixin  # type: ignore[import-untyped]
from sklearn.cluster import AgglomerativeClustering  # type: ignore[import-untyped]

from facetric.clustering.estimator import FacilityLocation
from facetric.metrics.contingency import contingency, label_codes

Method = Literal["facility_location", "average_linkage"]
_N_SETTINGS = 40
_SMALL, _TAIL = 5, (20, 2)  # photos per class of a small pile; of the largest and the smallest class of a long tail
MAX_PILE = 5000  # points; larger piles are thinned by leaving out classes


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


@dataclass(frozen=True)
class Calibration:
    """A clustering method with its setting, and what it reached on each kind of pile and on average."""

    method: Method
    threshold: float  # opening cost for squared distances, or the distance at which linkage stops
    expected: Agreement
    piles: Mapping[str, Agreement]

    def clusterer(self) -> ClusterMixin:
        """An estimator with this setting, for vectors of length one or of any length, as they were calibrated."""
        if self.method == "facility_location":
            return FacilityLocation(opening_cost=self.threshold, squared=True)
        return AgglomerativeClustering(None, linkage="average", distance_threshold=self.threshold)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a JSON file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Calibration:
        """What :meth:`as_dict` gave."""
        piles = {name: Agreement(**scores) for name, scores in record["piles"].items()}
        return cls(record["method"], record["threshold"], Agreement(**record["expected"]), piles)


def calibrate(
    embeddings: ArrayLike, labels: ArrayLike, *, method: Method | None = None, n_repeats: int = 2, seed: int = 0
) -> Calibration:
    """The setting with the best mean score over resampled piles, of all methods when `method` is None.

    The score is the mean of BCubed F1 and pairwise F1.

    `embeddings` (n, d) and `labels` (n,) are of classes that were not trained on: at least 4 classes, some with 2 images or more.
    Distances are Euclidean; pass unit vectors to compare directions.
    """
    vectors, classes = np.asarray(embeddings, dtype=np.float32), label_codes(labels)
    _check(vectors, classes, method)
    results = [_calibrate(name, vectors, classes, n_repeats, seed) for name in ([method] if method else get_args(Method))]
    return max(results, key=lambda result: _mean_score(result.piles))


def _check(vectors: NDArray[np.float32], classes: NDArray[np.int64], method: str | None) -> None:
    if vectors.ndim != 2 or len(vectors) != len(classes):
        raise ValueError(
            f"embeddings must be (n, d) with one label each; got {vectors.shape} and {len(classes)} labels: pass both"
        )
    if not np.isfinite(vectors).all():
        raise ValueError("embeddings must be finite: look for a diverged model or broken images")
    sizes = np.bincount(classes)
    if len(sizes) < 4 or (sizes > 1).sum() < 2:
        raise ValueError(
            f"calibration needs at least 4 classes, 2 of them with several images; got {len(sizes)} and {(sizes > 1).sum()}: "
            "pass more labeled classes"
        )
    if method is not None and method not in get_args(Method):
        raise ValueError(f"method must be one of {', '.join(get_args(Method))}; got {method!r}: choose one of these")


def resampled_piles(classes: NDArray[np.int64], seed: int) -> dict[str, NDArray[np.int64]]:
    """Rows of each pile: whole classes, five per class, a long tail from 20 to 2, and a long tail among images that are alone."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(int(classes.max()) + 1)
    rows = [rng.permutation(np.flatnonzero(classes == c)) for c in order]
    half = len(rows) // 2
    piles = {
        "whole classes": rows[:half],
        "five per class": [own[:_SMALL] for own in rows],
        "long tail": _tail(rows),
        "long tail and lonely": [*_tail(rows[:half]), *(own[:1] for own in rows[half:])],
    }
    return {name: np.concatenate(_thinned(parts)) for name, parts in piles.items()}


def _tail(rows: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    sizes = np.round(np.geomspace(*_TAIL, len(rows))).astype(int)
    return [own[:size] for own, size in zip(rows, sizes, strict=True)]


def _thinned(parts: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    n_fitting = int(np.searchsorted(np.cumsum([len(part) for part in parts]), MAX_PILE, side="right"))
    return parts[: max(n_fitting, 2)]


def _calibrate(
    method: Method, vectors: NDArray[np.float32], classes: NDArray[np.int64], n_repeats: int, seed: int
) -> Calibration:
    thresholds = _thresholds(method, vectors)
    cluster = _CLUSTERINGS[method]
    found: list[dict[str, list[Agreement]]] = [{} for _ in thresholds]
    for repeat in range(n_repeats):
        for name, rows in resampled_piles(classes, seed + repeat).items():
            for scores, clusters in zip(found, cluster(vectors[rows], thresholds), strict=True):
                scores.setdefault(name, []).append(Agreement.of(classes[rows], clusters))
    piles = [{name: _mean(scores) for name, scores in setting.items()} for setting in found]
    best = max(range(len(thresholds)), key=lambda i: _mean_score(piles[i]))
    return Calibration(method, float(thresholds[best]), _mean(list(piles[best].values())), piles[best])


def _thresholds(method: Method, vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """A grid between the smallest and the largest distances of a sample; an opening cost may be many times a distance."""
    sample = pdist(vectors[:: max(1, len(vectors) // 1000)])
    low, high = np.quantile(sample[sample > 0], [0.0001, 0.9]) if sample.any() else (1.0, 1.0)
    if method == "facility_location":
        return np.geomspace((low / 2) ** 2, 30 * high**2, _N_SETTINGS)
    return np.linspace(low / 2, high, _N_SETTINGS)


def _by_path(vectors: NDArray[np.float32], thresholds: NDArray[np.float64]) -> list[NDArray[np.int64]]:
    return [step.labels for step in FacilityLocation(squared=True).path(vectors, thresholds)]


def _by_linkage(vectors: NDArray[np.float32], thresholds: NDArray[np.float64]) -> list[NDArray[np.int64]]:
    tree = linkage(pdist(vectors), "average")
    return [fcluster(tree, threshold, "distance").astype(np.int64) for threshold in thresholds]


_CLUSTERINGS: dict[Method, Callable[[NDArray[np.float32], NDArray[np.float64]], list[NDArray[np.int64]]]] = {
    "facility_location": _by_path,
    "average_linkage": _by_linkage,
}


def _mean_score(piles: Mapping[str, Agreement]) -> float:
    return float(np.mean([pile.score for pile in piles.values()]))


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _mean(scores: list[Agreement]) -> Agreement:
    return Agreement(*(float(np.mean([getattr(score, name) for score in scores])) for name in Agreement.__dataclass_fields__))
