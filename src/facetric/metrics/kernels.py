"""What compiled code of other rooms may call, the solver above all: the second door of this room."""

from facetric.metrics.agreement import AMI, F1, NMI, SCORES, VMEASURE, ZERO_ONE, agreement, expected_mutual_information, phi_table
from facetric.metrics.exact_nearest import keep_nearest, nearest_keys
from facetric.metrics.matching import matched_points
from facetric.metrics.rank_kernels import count_others

__all__ = [
    "AMI",
    "F1",
    "NMI",
    "SCORES",
    "VMEASURE",
    "ZERO_ONE",
    "agreement",
    "count_others",
    "expected_mutual_information",
    "keep_nearest",
    "matched_points",
    "nearest_keys",
    "phi_table",
]
