"""Score vectors and print the tables."""

from typing import TYPE_CHECKING

from facetric.lazy import loaded_on_use

if TYPE_CHECKING:
    from facetric.evaluation.clustering import CalibratedClustering, ClusteringScores, FacilityClustering, KMeansClusterings
    from facetric.evaluation.lloyd import KMeans, kmeans
    from facetric.evaluation.report import EvaluationReport
    from facetric.evaluation.scores import evaluate
    from facetric.evaluation.tables import Comparison

__all__ = [
    "CalibratedClustering",
    "ClusteringScores",
    "Comparison",
    "EvaluationReport",
    "FacilityClustering",
    "KMeans",
    "KMeansClusterings",
    "evaluate",
    "kmeans",
]

_HOMES = {
    "CalibratedClustering": "clustering",
    "ClusteringScores": "clustering",
    "Comparison": "tables",
    "EvaluationReport": "report",
    "FacilityClustering": "clustering",
    "KMeans": "lloyd",
    "KMeansClusterings": "clustering",
    "evaluate": "scores",
    "kmeans": "lloyd",
}

__getattr__, __dir__ = loaded_on_use(__name__, _HOMES, __all__)
