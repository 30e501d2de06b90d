"""What are these vectors worth? Scores of vectors with labels, as a record and as tables."""

from facetric.clustering import facility_clusters
from facetric.evaluation.record import EvaluationReport, percent
from facetric.evaluation.scores import evaluate, evaluate_vectors
from facetric.evaluation.tables import CITATION, PUBLISHED, Comparison, Row, Score

__all__ = [
    "CITATION",
    "PUBLISHED",
    "Comparison",
    "EvaluationReport",
    "Row",
    "Score",
    "evaluate",
    "evaluate_vectors",
    "facility_clusters",
    "percent",
]
