"""Embed a dataset, score the embeddings, write the report, compare runs."""

from typing import TYPE_CHECKING

from facetric.evaluation.clustering import ClusteringScores, FacilityClustering, KMeans, kmeans
from facetric.evaluation.report import EvaluationReport
from facetric.evaluation.scores import evaluate
from facetric.lazy import loaded_on_use

if TYPE_CHECKING:
    from facetric.evaluation.comparison import Comparison, compare_runs
    from facetric.evaluation.embedding import embed
    from facetric.evaluation.embeddings import Embeddings
    from facetric.evaluation.run import evaluate_run

__all__ = [
    "ClusteringScores",
    "Comparison",
    "Embeddings",
    "EvaluationReport",
    "FacilityClustering",
    "KMeans",
    "compare_runs",
    "embed",
    "evaluate",
    "evaluate_run",
    "kmeans",
]

_HOMES = {
    "Comparison": "comparison",
    "compare_runs": "comparison",
    "embed": "embedding",
    "Embeddings": "embeddings",
    "evaluate_run": "run",
}

# Arrays are scored, and runs compared, without torch.
__getattr__ = loaded_on_use(__name__, _HOMES, __all__)
