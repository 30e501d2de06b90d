"""Compiled code: what the scores stand on, and what compiled code of other rooms may call, the solver above all."""

from facetric.metrics.kernels.nearest_keys import keep_nearest, nearest_keys
from facetric.metrics.kernels.rank_kernels import Gallery, Queries, count_others, read_ranks, sort_positives
from facetric.metrics.kernels.table_scores import (
    AMI,
    ARI,
    F1,
    NMI,
    SCORES,
    VMEASURE,
    ZERO_ONE,
    agreement,
    expected_mutual_information,
    matched_points,
    phi,
    phi_table,
)

__all__ = [
    "AMI",
    "ARI",
    "F1",
    "NMI",
    "SCORES",
    "VMEASURE",
    "ZERO_ONE",
    "Gallery",
    "Queries",
    "agreement",
    "count_others",
    "expected_mutual_information",
    "keep_nearest",
    "matched_points",
    "nearest_keys",
    "phi",
    "phi_table",
    "read_ranks",
    "sort_positives",
]
