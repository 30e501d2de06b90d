"""How good is a clustering or a ranking? Every score that facetric optimizes or reports, defined once. NumPy and numba only.

`facetric.metrics.kernels` is the door for compiled code.
"""

from facetric.metrics.agreement import (
    ClusteringScores,
    ami,
    ari,
    clustering_scores,
    matched_accuracy,
    nmi,
    pairwise_f1,
    purity,
    vmeasure,
)
from facetric.metrics.contingency import bcubed, contingency, label_codes, pairwise, precision_recall
from facetric.metrics.exact_nearest import nearest
from facetric.metrics.neighbors import Metric
from facetric.metrics.retrieval import (
    checked_ks,
    map_at_r,
    r_precision,
    recall_at_k,
    retrieval,
    retrieval_by_class,
    score_retrieval,
)
from facetric.metrics.vectors import unit_rows, validated_vectors

__all__ = [
    "ClusteringScores",
    "Metric",
    "ami",
    "ari",
    "bcubed",
    "checked_ks",
    "clustering_scores",
    "contingency",
    "label_codes",
    "map_at_r",
    "matched_accuracy",
    "nearest",
    "nmi",
    "pairwise",
    "pairwise_f1",
    "precision_recall",
    "purity",
    "r_precision",
    "recall_at_k",
    "retrieval",
    "retrieval_by_class",
    "score_retrieval",
    "unit_rows",
    "validated_vectors",
    "vmeasure",
]
