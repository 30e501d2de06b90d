"""What are these vectors worth? Scores of vectors with labels, as a record and as tables."""

from facetric.evaluation.clusterings import ClusteringScores, facility_clusters
from facetric.evaluation.published import CITATION, PUBLISHED
from facetric.evaluation.record import EvaluationReport
from facetric.evaluation.scores import evaluate
from facetric.evaluation.tables import (
    Comparison,
    Difference,
    Format,
    Row,
    Score,
    clustering_notes,
    comparable_scores,
    comparison_text,
    other_scores,
    percent,
)

__all__ = [
    "CITATION",
    "PUBLISHED",
    "ClusteringScores",
    "Comparison",
    "Difference",
    "EvaluationReport",
    "Format",
    "Row",
    "Score",
    "clustering_notes",
    "comparable_scores",
    "comparison_text",
    "evaluate",
    "facility_clusters",
    "other_scores",
    "percent",
]
