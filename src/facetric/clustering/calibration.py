"""Which threshold suits an embedding: chosen on labeled classes that it was not trained on.

Nobody knows how many photos a class of an unsorted pile has. So the labeled classes are resampled into piles of several shapes,
and the threshold is chosen that does best on average over the piles. What it reached there is what to expect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist  # type: ignore[import-untyped]

from facetric.clustering.agreement import Agreement
from facetric.clustering.estimator import FacilityLocation
from facetric.clustering.linkage import AverageLinkage
from facetric.metrics.contingency import label_codes

Method = Literal["average_linkage", "facility_location"]
FORMAT = 1  # of as_dict
_N_STEPS = 60
_SMALL, _TAIL = 5, (20, 2)  # photos per class of a small pile; of the largest and the smallest class of a long tail
MAX_PILE = 5000  # points; larger piles are thinned by leaving out classes


@dataclass(frozen=True)
class CalibrationStep:
    """A threshold, and what it reached on each kind of pile and on average."""

    threshold: float
    expected: Agreement
    piles: Mapping[str, Agreement]


@dataclass(frozen=True)
class Calibration:
    """A clustering method with its threshold, and what to expect of this one and of finer and coarser ones."""

    method: Method
    position: int  # of the threshold in steps
    steps: tuple[CalibrationStep, ...]  # from fine to coarse

    @property
    def threshold(self) -> float:
        """The distance at which linkage stops, or the opening cost for squared distances."""
        return self.steps[self.position].threshold

    @property
    def expected(self) -> Agreement:
        """Mean over all kinds of piles."""
        return self.steps[self.position].expected

    @property
    def piles(self) -> Mapping[str, Agreement]:
        return self.steps[self.position].piles

    def finer(self, n_steps: int = 1) -> Calibration:
        """The same with a smaller threshold: smaller clusters, of higher precision. Ends at the finest step."""
        return self.coarser(-n_steps)

    def coarser(self, n_steps: int = 1) -> Calibration:
        """The same with a larger threshold: larger clusters, of higher recall. Ends at the coarsest step."""
        return replace(self, position=min(max(self.position + n_steps, 0), len(self.steps) - 1))

    def with_precision(self, precision: float) -> Calibration:
        """The coarsest step up to which the expected pairwise precision is at least this."""
        if not 0 < precision <= 1:
            raise ValueError(f"precision must lie between 0 and 1; got {precision}: 0.95 is one wrong pair in twenty")
        enough = [step.expected.pairwise_precision >= precision for step in self.steps]
        if not enough[0]:
            best = max(step.expected.pairwise_precision for step in self.steps)
            raise ValueError(f"no threshold reached a pairwise precision of {precision}; the best was {best:.3f}: ask for less")
        return replace(self, position=(*enough, False).index(False) - 1)

    def clusterer(self) -> AverageLinkage | FacilityLocation:
        """An estimator with this threshold, for vectors of length one or of any length, as they were calibrated."""
        if self.method == "facility_location":
            return FacilityLocation(opening_cost=self.threshold, squared=True)
        return AverageLinkage(self.threshold)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a JSON file."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Calibration:
        """What :meth:`as_dict` gave."""
        found = record.get("format") if isinstance(record, Mapping) else None
        if found != FORMAT:
            raise ValueError(f"a stored calibration must have format {FORMAT}; got {found!r}: calibrate again")
        try:
            steps = tuple(_step(step) for step in record["steps"])
            calibration = cls(record["method"], record["position"], steps)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a stored calibration is incomplete ({error!r}): calibrate again") from error
        _check_stored(calibration)
        return calibration


def _step(record: Mapping[str, Any]) -> CalibrationStep:
    piles = {name: Agreement(**scores) for name, scores in record["piles"].items()}
    return CalibrationStep(record["threshold"], Agreement(**record["expected"]), piles)


def _check_stored(calibration: Calibration) -> None:
    if calibration.method not in get_args(Method):
        raise ValueError(f"a stored calibration has the unknown method {calibration.method!r}: calibrate again")
    thresholds = [step.threshold for step in calibration.steps]
    agreements = [agreement for step in calibration.steps for agreement in (step.expected, *step.piles.values())]
    values = [*thresholds, *(value for agreement in agreements for value in asdict(agreement).values())]
    if not all(isinstance(value, int | float) and np.isfinite(value) and value >= 0 for value in values):
        raise ValueError("a stored calibration holds values that are not finite numbers of at least 0: calibrate again")
    if max(value for agreement in agreements for value in asdict(agreement).values()) > 1 or thresholds != sorted(thresholds):
        raise ValueError("a stored calibration has scores above 1 or thresholds out of order: calibrate again")
    if not (isinstance(calibration.position, int) and 0 <= calibration.position < len(thresholds)):
        raise ValueError(f"a stored calibration has {len(thresholds)} steps, but is at {calibration.position!r}: calibrate again")


def calibrate(
    embeddings: ArrayLike, labels: ArrayLike, *, method: Method = "average_linkage", n_repeats: int = 2, seed: int = 0
) -> Calibration:
    """The threshold with the best mean score over resampled piles. The score is the mean of BCubed F1 and pairwise F1.

    `embeddings` (n, d) and `labels` (n,) are of classes that were not trained on: at least 4 classes, some with 2 images or more.
    Distances are Euclidean; pass unit vectors to compare directions. The threshold of average linkage is a mean distance, and
    suits classes of any size. An opening cost is weighed against a sum over points: facility location can be as good on tight
    classes, but expects classes about as large as those it was calibrated on.
    """
    vectors, classes = np.asarray(embeddings, dtype=np.float32), label_codes(labels)
    _check(vectors, classes, method)
    thresholds = _thresholds(method, vectors)
    cluster = _CLUSTERINGS[method]
    found: list[dict[str, list[Agreement]]] = [{} for _ in thresholds]
    for repeat in range(n_repeats):
        for name, rows in resampled_piles(classes, seed + repeat).items():
            for scores, clusters in zip(found, cluster(vectors[rows], thresholds), strict=True):
                scores.setdefault(name, []).append(Agreement.of(classes[rows], clusters))
    piles = [{name: Agreement.mean(scores) for name, scores in setting.items()} for setting in found]
    steps = tuple(
        CalibrationStep(float(threshold), Agreement.mean(scores.values()), scores)
        for threshold, scores in zip(thresholds, piles, strict=True)
    )
    best = max(range(len(steps)), key=lambda i: _mean_score(steps[i].piles))
    return Calibration(method, best, steps)


def _mean_score(piles: Mapping[str, Agreement]) -> float:
    return float(np.mean([pile.score for pile in piles.values()]))


def _check(vectors: NDArray[np.float32], classes: NDArray[np.int64], method: str) -> None:
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
    if method not in get_args(Method):
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
    """Classes all along the list, so that what is left has the same shape."""
    n_points = sum(len(part) for part in parts)
    n_kept = min(max(len(parts) * MAX_PILE // n_points, 2), len(parts))
    return [parts[i] for i in np.linspace(0, len(parts) - 1, n_kept).astype(int)]


def _thresholds(method: Method, vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """A grid between the smallest and the largest distances of a sample; an opening cost may be many times a distance."""
    distances = pdist(vectors[:: max(1, len(vectors) // 1000)])
    low, high = np.quantile(distances[distances > 0], [0.0001, 0.9]) if distances.any() else (1.0, 1.0)
    if method == "facility_location":
        return np.geomspace((low / 2) ** 2, 30 * high**2, _N_STEPS)
    return np.linspace(low / 2, high, _N_STEPS)


def _by_tree(vectors: NDArray[np.float32], thresholds: NDArray[np.float64]) -> list[NDArray[np.int64]]:
    return AverageLinkage().path(vectors, thresholds)


def _by_path(vectors: NDArray[np.float32], thresholds: NDArray[np.float64]) -> list[NDArray[np.int64]]:
    return [step.labels for step in FacilityLocation(squared=True).path(vectors, thresholds)]


_CLUSTERINGS: dict[Method, Callable[[NDArray[np.float32], NDArray[np.float64]], list[NDArray[np.int64]]]] = {
    "average_linkage": _by_tree,
    "facility_location": _by_path,
}
