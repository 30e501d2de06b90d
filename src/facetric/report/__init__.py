"""How does a run look? Its page and the figures for print; they read files and arrays, never the network."""

from facetric.report.figures import save_comparison
from facetric.report.page import write_report, write_vectors_report

__all__ = ["save_comparison", "write_report", "write_vectors_report"]
