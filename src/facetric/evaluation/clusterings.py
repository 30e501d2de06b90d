"""Clusterings of an embedded set into as many clusters as it has classes: k-means from random starts, and from medoids."""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facetric.clustering import KMeans, PairLinkage, PairModel, facility_clusters, kmeans
from facetric.metrics import ClusteringScores, clustering_scores
from facetric.progress import Progress


@dataclass(frozen=True)
class ScoredClustering:
    """One k-means clustering."""

    objective: float  # Σ squared distances to the own center; lower is better
    n_iterations: int
    scores: ClusteringScores
    seed: int | None = None  # of its random start; None: from the medoids of facility location

    @classmethod
    def of(cls, found: KMeans, classes: NDArray[np.int64], seed: int | None = None) -> ScoredClustering:
        return cls(found.objective, found.n_iterations, clustering_scores(classes, found.labels), seed)


@dataclass(frozen=True)
class KMeansClusterings:
    """k-means from random starts, as in the literature: the mean of every score, and each start."""

    scores: ClusteringScores
    nmi_sd: float  # standard deviation over the restarts, n − 1; 0 for one
    restarts: tuple[ScoredClustering, ...]

    @classmethod
    def of(cls, restarts: list[ScoredClustering]) -> KMeansClusterings:
        columns = zip(*(astuple(restart.scores) for restart in restarts), strict=True)
        mean = ClusteringScores(*(float(np.mean(values)) for values in columns))
        sd = float(np.std([restart.scores.nmi for restart in restarts], ddof=1)) if len(restarts) > 1 else 0.0
        return cls(mean, sd, tuple(restarts))


@dataclass(frozen=True)
class PairClustering:
    """A clustering by `PairLinkage`, which was not told the number of classes."""

    n_clusters: int  # as found
    scores: ClusteringScores
    expected: dict[str, Any] | None  # precision and recall, as the pair model expects them; None where all are alone

    @classmethod
    def of(cls, rows: NDArray[np.float32], classes: NDArray[np.int64], model: PairModel, progress: Progress) -> PairClustering:
        found = PairLinkage(model).fit(rows, progress=progress)
        expected = None if found.expected_ is None else asdict(found.expected_)
        return cls(found.n_clusters_, clustering_scores(classes, found.labels_), expected)


def clusterings(
    rows: NDArray[np.float32],
    classes: NDArray[np.int64],
    *,
    facility: bool,
    n_restarts: int,
    seed: int,
    pair_model: PairModel | None,
    progress: Progress,
) -> dict[str, Any]:
    """What a report says about clusters; its own scores are those of k-means from random starts."""
    found: dict[str, Any] = {}
    n_classes = int(classes.max()) + 1
    if facility:
        progress("Facility location", 0, 1)
        found["facility_location"] = ScoredClustering.of(facility_clusters(rows, n_classes), classes)
        progress("Facility location", 1, 1)
    if n_restarts:
        progress("k-means", 0, n_restarts)
        restarts = []
        for i in range(n_restarts):
            restarts.append(ScoredClustering.of(kmeans(rows, n_classes, seed=seed + i), classes, seed + i))
            progress("k-means", i + 1, n_restarts)
        found["kmeans"] = KMeansClusterings.of(restarts)
        found |= asdict(found["kmeans"].scores)
    if pair_model is not None:
        found["pair_linkage"] = PairClustering.of(rows, classes, pair_model, progress)
    return found
