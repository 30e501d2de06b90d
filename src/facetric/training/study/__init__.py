"""Studies: many runs under one protocol, from the search on validation classes to the table on test classes."""

from facetric.training.study.reproduction import auto_setting, reproduction
from facetric.training.study.spaces import PAPER_METHODS
from facetric.training.study.study import Setting, Study
from facetric.training.study.workers import say

__all__ = ["PAPER_METHODS", "Setting", "Study", "auto_setting", "reproduction", "say"]
