"""Every score that facetric optimizes or reports, defined once. NumPy and numba only."""

from facetric.metrics.agreement import ami, ari, matched_accuracy, nmi, pairwise_f1, purity, vmeasure
from facetric.metrics.precision_recall import PrecisionRecall, bcubed, pairwise
from facetric.metrics.retrieval import RetrievalScores, map_at_r, precision_at_1, r_precision, recall_at_k, retrieval

__all__ = [
    "PrecisionRecall",
    "RetrievalScores",
    "ami",
    "ari",
    "bcubed",
    "map_at_r",
    "matched_accuracy",
    "nmi",
    "pairwise",
    "pairwise_f1",
    "precision_at_1",
    "purity",
    "r_precision",
    "recall_at_k",
    "retrieval",
    "vmeasure",
]
