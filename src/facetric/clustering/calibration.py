"""Which threshold suits an embedding: chosen on labeled classes that it was not trained on.

The sizes of the classes of an unlabeled set are unknown. So the labeled classes are resampled into sets of several shapes, and
the threshold is chosen that does best on average over these. What to expect of another set is in `expected`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist  # type: ignore[import-untyped]

from facetric.clustering.expected import MIN_RATE, Agreement, ExpectedPrecision, PairRates, Sample
from facetric.clustering.knn import prepared
from facetric.clustering.linkage import AverageLinkage
from facetric.clustering.links import Links
from facetric.clustering.tree import average_linkage
from facetric.metrics import label_codes

FORMAT = 3  # of as_dict
_N_STEPS = 60
_FEW, _TAIL = 5, (20, 2)  # images per class of a small set; of the largest and the smallest class of a long tail
_MAX_POINTS = 5000  # of a resampled set
_MAX_WRONG = 0.1  # beyond this rate of wrong pairs nobody wants a clustering


@dataclass(frozen=True)
class CalibrationStep:
    """A threshold, and what it reached on each kind of resampled set and on average."""

    threshold: float
    reached: Agreement  # mean over the resampled sets
    by_set: Mapping[str, Agreement]
    rates: PairRates  # mean over the resampled sets


@dataclass(frozen=True)
class Calibration:
    """A threshold of average linkage, and what to expect of this one and of finer and coarser ones."""

    position: int  # of the threshold in steps
    steps: tuple[CalibrationStep, ...]  # from fine to coarse
    between: float  # the distance within which a tenth of the pairs of different classes lie
    spread: float  # of the logarithm of the odds of an expected precision

    def __repr__(self) -> str:
        return f"<Calibration: threshold {self.threshold:.4g}, step {self.position + 1} of {len(self.steps)}>"

    @property
    def threshold(self) -> float:
        """The distance at which linkage stops."""
        return self.steps[self.position].threshold

    @property
    def reached(self) -> Agreement:
        """Mean over the resampled sets of the labeled classes; :meth:`expected` is about other sets."""
        return self.steps[self.position].reached

    def finer(self, n_steps: int = 1) -> Calibration:
        """The same with a smaller threshold: smaller clusters, of higher precision. Ends at the finest step."""
        return self.coarser(-n_steps)

    def coarser(self, n_steps: int = 1) -> Calibration:
        """The same with a larger threshold: larger clusters, of higher recall. Ends at the coarsest step."""
        return replace(self, position=min(max(self.position + n_steps, 0), len(self.steps) - 1))

    def with_precision(self, precision: float) -> Calibration:
        """The coarsest step up to which the pairwise precision on the labeled classes is at least this."""
        if not 0 < precision <= 1:
            raise ValueError(f"precision must lie between 0 and 1; got {precision}: 0.95 is one wrong pair in twenty")
        enough = [step.reached.pairwise_precision >= precision for step in self.steps]
        if not enough[0]:
            best = max(step.reached.pairwise_precision for step in self.steps)
            raise ValueError(f"no threshold reached a pairwise precision of {precision}; the best was {best:.3f}: ask for less")
        return replace(self, position=(*enough, False).index(False) - 1)

    def clusterer(self) -> AverageLinkage:
        """An estimator with this threshold, for vectors of length one or of any length, as they were calibrated."""
        return AverageLinkage(self.threshold)

    def expected(self, X: ArrayLike, labels: ArrayLike) -> ExpectedPrecision:
        """What to expect of the clusters `labels` (n,) that :meth:`clusterer` found in the rows of X, classes unknown."""
        vectors, clusters = np.asarray(X, dtype=np.float32), label_codes(labels)
        if vectors.ndim != 2 or len(vectors) != len(clusters):
            raise ValueError(
                f"X must be (n, d) with one cluster each; got {vectors.shape} and {len(clusters)} clusters: pass both"
            )
        rates = self._rates_among(Sample(vectors).distance_between(clusters))
        return ExpectedPrecision(rates.expected_precision(clusters, self.spread), rates.right)

    def _rates_among(self, apart: float) -> PairRates:
        """What the threshold does among classes of which a tenth of the pairs lie within this distance."""
        nearer = apart / self.between if apart > 0 and self.between > 0 else 1.0
        wrong = np.maximum([step.rates.wrong for step in self.steps], MIN_RATE)
        found = np.exp(np.interp(self.threshold / nearer, [step.threshold for step in self.steps], np.log(wrong)))
        return replace(self.steps[self.position].rates, wrong=float(found))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a JSON file, and equal to what is read from it."""
        values = asdict(self)
        return {"format": FORMAT, **values, "steps": list(values["steps"])}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Calibration:
        """What :meth:`as_dict` gave."""
        found = record.get("format") if isinstance(record, Mapping) else None
        if found != FORMAT:
            raise ValueError(f"a stored calibration must have format {FORMAT}; got {found!r}: calibrate again")
        try:
            steps = tuple(_step(step) for step in record["steps"])
            calibration = cls(record["position"], steps, record["between"], record["spread"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a stored calibration is incomplete ({error!r}): calibrate again") from error
        _check_stored(calibration)
        return calibration


def _step(record: Mapping[str, Any]) -> CalibrationStep:
    by_set = {name: Agreement(**scores) for name, scores in record["by_set"].items()}
    return CalibrationStep(record["threshold"], Agreement(**record["reached"]), by_set, PairRates(**record["rates"]))


def _check_stored(calibration: Calibration) -> None:
    thresholds = [step.threshold for step in calibration.steps]
    agreements = [agreement for step in calibration.steps for agreement in (step.reached, *step.by_set.values())]
    scores = [value for agreement in agreements for value in asdict(agreement).values()]
    scores += [rate for step in calibration.steps for rate in (step.rates.right, step.rates.wrong)]
    values = [*thresholds, *scores, *(step.rates.same for step in calibration.steps), calibration.between, calibration.spread]
    if not all(isinstance(value, int | float) and np.isfinite(value) and value >= 0 for value in values):
        raise ValueError("a stored calibration holds values that are not finite numbers of at least 0: calibrate again")
    if max(scores) > 1 or thresholds != sorted(thresholds):
        raise ValueError("a stored calibration has scores above 1 or thresholds out of order: calibrate again")
    if not (isinstance(calibration.position, int) and 0 <= calibration.position < len(thresholds)):
        raise ValueError(f"a stored calibration has {len(thresholds)} steps, but is at {calibration.position!r}: calibrate again")


def calibrate(embeddings: ArrayLike, labels: ArrayLike, *, n_repeats: int = 2, seed: int = 0) -> Calibration:
    """The threshold with the best mean score over resampled sets. The score is the mean of BCubed F1 and pairwise F1.

    `embeddings` (n, d) and `labels` (n,) are of classes that were not trained on: at least 4 classes, some with 2 images or more.
    Distances are Euclidean; pass unit vectors to compare directions. The threshold of average linkage is a mean distance, and
    suits classes of any size.
    """
    vectors, classes = np.asarray(embeddings, dtype=np.float32), label_codes(labels)
    _check(vectors, classes)
    thresholds = _thresholds(vectors)
    sets = [pair for repeat in range(n_repeats) for pair in resampled_sets(classes, seed + repeat).items()]
    clusterings = [(rows, _cuts(vectors[rows], thresholds)) for _, rows in sets]
    steps = []
    for i, threshold in enumerate(thresholds):
        found: dict[str, list[Agreement]] = {}
        for (name, rows), (_, clusters) in zip(sets, clusterings, strict=True):
            found.setdefault(name, []).append(Agreement.of(classes[rows], clusters[i]))
        by_set = {name: Agreement.mean(scores) for name, scores in found.items()}
        rates = _mean_rates(classes, clusterings, i)
        steps.append(CalibrationStep(float(threshold), Agreement.mean(by_set.values()), by_set, rates))
    best = max(range(len(steps)), key=lambda i: np.mean([one.score for one in steps[i].by_set.values()]))
    calibration = Calibration(best, tuple(steps), Sample(vectors).distance_between(classes), 0.0)
    parts = [(rows, _cuts(vectors[rows], thresholds)) for rows in _halves(classes, seed)]
    of_shape, of_classes = (_error(calibration, vectors, classes, some) for some in (clusterings, parts))
    return replace(calibration, spread=float(np.hypot(of_shape, of_classes)))


def resampled_sets(classes: NDArray[np.int64], seed: int, *, max_points: int = _MAX_POINTS) -> dict[str, NDArray[np.int64]]:
    """Rows of each set: whole classes, five per class, a long tail from 20 to 2, and a long tail among images that are alone.

    Sets of more than `max_points` are thinned by leaving out classes.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(int(classes.max()) + 1)
    rows = rows_by_class(classes, order, rng)
    half = len(rows) // 2
    sets = {
        "whole classes": rows[:half],
        "five per class": [own[:_FEW] for own in rows],
        "long tail": _tail(rows),
        "long tail and lonely": [*_tail(rows[:half]), *(own[:1] for own in rows[half:])],
    }
    return {name: np.concatenate(_thinned(parts, max_points)) for name, parts in sets.items()}


def rows_by_class(classes: NDArray[np.int64], order: NDArray[np.int64], rng: np.random.Generator) -> list[NDArray[np.int64]]:
    return [rng.permutation(np.flatnonzero(classes == c)) for c in order]


def _tail(rows: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    sizes = np.round(np.geomspace(*_TAIL, len(rows))).astype(int)
    return [own[:size] for own, size in zip(rows, sizes, strict=True)]


def _thinned(parts: list[NDArray[np.int64]], max_points: int) -> list[NDArray[np.int64]]:
    """Classes all along the list, so that what is left has the same shape."""
    n_points = sum(len(part) for part in parts)
    n_kept = min(max(len(parts) * max_points // n_points, 2), len(parts))
    return [parts[i] for i in np.linspace(0, len(parts) - 1, n_kept).astype(int)]


_Clusterings = list[tuple[NDArray[np.int64], list[NDArray[np.int64]]]]  # rows, and their clusters at every threshold


def _mean_rates(classes: NDArray[np.int64], clusterings: _Clusterings, i: int) -> PairRates:
    rates = [PairRates.of(classes[rows], clusters[i]) for rows, clusters in clusterings]
    right, wrong = (float(np.mean([getattr(rate, name) for rate in rates])) for name in ("right", "wrong"))
    return PairRates(right, wrong, float(np.exp(np.mean([np.log(max(rate.same, MIN_RATE)) for rate in rates]))))


def _halves(classes: NDArray[np.int64], seed: int) -> Iterator[NDArray[np.int64]]:
    """Rows of every other class, and of the first and the last.

    Neighboring labels are often alike (a family of birds, an alphabet), and other than the rest, as the classes of a new set
    may be.
    """
    order = np.arange(int(classes.max()) + 1)
    for part in (order[::2], order[1::2], *np.array_split(order, 2)):
        own = rows_by_class(classes, part, np.random.default_rng(seed))
        yield np.concatenate([rows[: _TAIL[0]] for rows in own])


def _error(calibration: Calibration, vectors: NDArray[np.float32], classes: NDArray[np.int64], sets: _Clusterings) -> float:
    """Root mean square error of the logarithm of the odds of precision, where these can be measured."""
    errors = []
    for rows, clusterings in sets:
        sample, n_classes = Sample(vectors[rows]), len(np.unique(classes[rows]))
        for i, clusters in enumerate(clusterings):
            wrong = calibration.steps[i].rates.wrong
            if wrong > _MAX_WRONG or wrong * n_classes**2 / 2 < 2:  # no two classes are alike
                continue
            precision = Agreement.of(classes[rows], clusters).pairwise_precision
            if 0 < precision < 1:
                rates = replace(calibration, position=i)._rates_among(sample.distance_between(clusters))
                expected = rates.expected_precision(clusters).value
                errors.append(np.log(expected / (1 - expected) * (1 - precision) / precision))
    return float(np.sqrt(np.mean(np.square(errors)))) if errors else 1.0


def _check(vectors: NDArray[np.float32], classes: NDArray[np.int64]) -> None:
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


def _thresholds(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """A grid between the smallest and the largest distances of a sample."""
    distances = pdist(vectors[:: max(1, len(vectors) // 1000)])
    low, high = np.quantile(distances[distances > 0], [0.0001, 0.9]) if distances.any() else (1.0, 1.0)
    return np.linspace(low / 2, high, _N_STEPS)


def _cuts(vectors: NDArray[np.float32], thresholds: NDArray[np.float64]) -> list[NDArray[np.int64]]:
    """The clusters of `AverageLinkage` at each of these ascending thresholds, out of one tree."""
    points = prepared(vectors, vectors.mean(axis=0, dtype=np.float64), cosine=False)
    links = Links.parse(None, None, len(points))
    tree = average_linkage(points, float(thresholds[-1]) ** 2, n_neighbors=AverageLinkage().n_neighbors, links=links)
    return [tree.cut(float(threshold) ** 2) for threshold in thresholds]
