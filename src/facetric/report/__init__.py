"""How does a run look? Its page and the figures for print; they read files and arrays, never the network."""

from facetric.report.page import Report, write_report
from facetric.report.pictures import save_comparison

__all__ = ["Report", "save_comparison", "write_report"]
