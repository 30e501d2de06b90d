"""Embed a dataset, score the embeddings, write the report, compare runs."""

from typing import TYPE_CHECKING, Any

from facetric.evaluation.clustering import ClusteringScores, FacilityClustering, KMeans, kmeans
from facetric.evaluation.report import EvaluationReport
from facetric.evaluation.scores import evaluate

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


def __getattr__(name: str) -> Any:
    """Load what needs torch on first use: arrays are scored, and runs compared, without it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'facetric.evaluation' has no attribute {name!r}; it has {', '.join(__all__)}")
    from importlib import import_module

    return getattr(import_module(f"facetric.evaluation.{_HOMES[name]}"), name)
