"""Studies: many runs under one protocol, from the search on validation classes to the table on test classes."""

from facetric.training.study.study import Setting, Study

__all__ = ["Setting", "Study"]
