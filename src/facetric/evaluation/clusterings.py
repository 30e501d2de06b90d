"""Clusterings of an embedded set into as many clusters as it has classes: means from medoids, and k-means from random starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facetric.clustering import Calibration, FacilityLocation, kmeans
from facetric.metrics import ami, ari, bcubed, nmi, pairwise, purity, vmeasure
from facetric.progress import Progress


@dataclass(frozen=True)
class ClusteringScores:
    """How well a clustering agrees with the classes."""

    nmi: float  # geometric mean of the entropies, the paper's
    vmeasure: float  # arithmetic mean: scikit-learn's NMI
    ami: float
    ari: float
    pairwise_precision: float
    pairwise_recall: float
    pairwise_f1: float
    bcubed_precision: float
    bcubed_recall: float
    bcubed_f1: float
    purity: float

    @classmethod
    def of(cls, classes: NDArray[np.int64], clusters: NDArray[np.int64]) -> ClusteringScores:
        pairs, points = pairwise(classes, clusters), bcubed(classes, clusters)
        return cls(
            nmi=nmi(classes, clusters),
            vmeasure=vmeasure(classes, clusters),
            ami=ami(classes, clusters),
            ari=ari(classes, clusters),
            pairwise_precision=pairs.precision,
            pairwise_recall=pairs.recall,
            pairwise_f1=pairs.f1,
            bcubed_precision=points.precision,
            bcubed_recall=points.recall,
            bcubed_f1=points.f1,
            purity=purity(classes, clusters),
        )

    @classmethod
    def mean(cls, several: Sequence[ClusteringScores]) -> ClusteringScores:
        """The mean of every score."""
        return cls(*(float(np.mean([getattr(scores, field.name) for scores in several])) for field in fields(cls)))


@dataclass(frozen=True)
class FacilityClustering:
    """One clustering by facility location: medoids for squared distances, then k-means from there. No random start."""

    objective: float  # Σ squared distances to the own center, as for k-means
    n_iterations: int
    scores: ClusteringScores


@dataclass(frozen=True)
class Restart:
    """One k-means clustering."""

    seed: int
    objective: float  # Σ squared distances to the own center; lower is better
    n_iterations: int
    scores: ClusteringScores


@dataclass(frozen=True)
class KMeansClusterings:
    """k-means from random starts, as in the literature: the mean of every score, and each start."""

    scores: ClusteringScores
    nmi_sd: float  # standard deviation over the restarts, n − 1; 0 for one
    restarts: tuple[Restart, ...]


@dataclass(frozen=True)
class CalibratedClustering:
    """A clustering that was not told the number of classes: method and threshold come from other classes."""

    n_clusters: int  # as found
    scores: ClusteringScores
    calibration: dict[str, Any]  # method, threshold, and the precision and recall expected of these vectors


def facility_clusters(rows: NDArray[np.float32], n_clusters: int) -> FacilityLocation:
    """The clustering that is scored: `FacilityLocation` with means, fitted to the rows."""
    return FacilityLocation(n_clusters).fit(rows)


def facility_clustering(rows: NDArray[np.float32], classes: NDArray[np.int64]) -> FacilityClustering:
    """`facility_clusters` with as many clusters as classes, and its scores."""
    fit = facility_clusters(rows, int(classes.max()) + 1)
    return FacilityClustering(float(fit.objective_), int(fit.n_iter_), ClusteringScores.of(classes, fit.labels_))


def calibrated_clustering(
    rows: NDArray[np.float32], classes: NDArray[np.int64], calibration: Calibration
) -> CalibratedClustering:
    """The clusters of a calibrated method, however many it finds, and their scores."""
    labels: NDArray[np.int64] = calibration.clusterer().fit_predict(rows)
    used = {
        "method": "average_linkage",
        "threshold": calibration.threshold,
        "expected": asdict(calibration.expected(rows, labels)),
    }
    return CalibratedClustering(len(np.unique(labels)), ClusteringScores.of(classes, labels), used)


def kmeans_clusterings(
    rows: NDArray[np.float32], classes: NDArray[np.int64], *, n_restarts: int, seed: int, progress: Progress
) -> KMeansClusterings:
    """k-means with as many clusters as classes from `n_restarts` seeds."""
    restarts = []
    progress("k-means", 0, n_restarts)
    for i in range(n_restarts):
        found = kmeans(rows, int(classes.max()) + 1, seed=seed + i)
        scores = ClusteringScores.of(classes, found.labels)
        restarts.append(Restart(seed + i, found.objective, found.n_iterations, scores))
        progress("k-means", i + 1, n_restarts)
    sd = float(np.std([restart.scores.nmi for restart in restarts], ddof=1)) if n_restarts > 1 else 0.0
    return KMeansClusterings(ClusteringScores.mean([restart.scores for restart in restarts]), sd, tuple(restarts))
