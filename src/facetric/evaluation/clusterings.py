"""Clusterings of an embedded set into as many clusters as it has classes: means from medoids, and k-means from random starts."""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facetric.clustering import Calibration, KMeans, kmeans, kmeans_from_medoids
from facetric.metrics import ClusteringScores, clustering_scores
from facetric.progress import Progress


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


def facility_clusters(rows: NDArray[np.float32], n_clusters: int) -> KMeans:
    """The clustering that is scored first: `FacilityLocation` with means, fitted to the rows."""
    return kmeans_from_medoids(rows, n_clusters)


def facility_clustering(rows: NDArray[np.float32], classes: NDArray[np.int64]) -> FacilityClustering:
    """`facility_clusters` with as many clusters as classes, and its scores."""
    found = facility_clusters(rows, int(classes.max()) + 1)
    return FacilityClustering(found.objective, found.n_iterations, clustering_scores(classes, found.labels))


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
    return CalibratedClustering(len(np.unique(labels)), clustering_scores(classes, labels), used)


def kmeans_clusterings(
    rows: NDArray[np.float32], classes: NDArray[np.int64], *, n_restarts: int, seed: int, progress: Progress
) -> KMeansClusterings:
    """k-means with as many clusters as classes from `n_restarts` seeds."""
    restarts = []
    progress("k-means", 0, n_restarts)
    for i in range(n_restarts):
        found = kmeans(rows, int(classes.max()) + 1, seed=seed + i)
        scores = clustering_scores(classes, found.labels)
        restarts.append(Restart(seed + i, found.objective, found.n_iterations, scores))
        progress("k-means", i + 1, n_restarts)
    columns = zip(*(astuple(restart.scores) for restart in restarts), strict=True)
    mean = ClusteringScores(*(float(np.mean(values)) for values in columns))
    sd = float(np.std([restart.scores.nmi for restart in restarts], ddof=1)) if n_restarts > 1 else 0.0
    return KMeansClusterings(mean, sd, tuple(restarts))
