"""Embed a dataset, score the embeddings, print the tables."""

from typing import TYPE_CHECKING

from facetric.evaluation.clustering import ClusteringScores, FacilityClustering, KMeans, kmeans
from facetric.evaluation.report import EvaluationReport
from facetric.evaluation.scores import evaluate
from facetric.evaluation.tables import Comparison
from facetric.lazy import loaded_on_use

if TYPE_CHECKING:
    from facetric.evaluation.embedding import embed
    from facetric.evaluation.embeddings import Embeddings

__all__ = [
    "ClusteringScores",
    "Comparison",
    "Embeddings",
    "EvaluationReport",
    "FacilityClustering",
    "KMeans",
    "embed",
    "evaluate",
    "kmeans",
]

_HOMES = {
    "embed": "embedding",
    "Embeddings": "embeddings",
}

# Arrays are scored without torch.
__getattr__, __dir__ = loaded_on_use(__name__, _HOMES, __all__)
