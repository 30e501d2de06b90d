"""Studies: many runs under one protocol, from the search on validation classes to the table on test classes."""

from facetric.training.study.reproduction import reproduction
from facetric.training.study.study import Study

__all__ = ["Study", "reproduction"]
