"""report.html: one page that shows a run."""

from facetric.figures.report.data import EmbeddedImages, RunRecord, read_run
from facetric.figures.report.writer import report_run, write_report

__all__ = ["EmbeddedImages", "RunRecord", "read_run", "report_run", "write_report"]
