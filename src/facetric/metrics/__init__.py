"""Every score that facetric optimises or reports, defined once. NumPy and numba only."""

from facetric.metrics.agreement import ami, ari, matched_accuracy, nmi, pairwise_f1, vmeasure

__all__ = ["ami", "ari", "matched_accuracy", "nmi", "pairwise_f1", "vmeasure"]
