"""Figures and the report page of a run. They read files and arrays, never the model."""

from typing import TYPE_CHECKING

from facetric.lazy import loaded_on_use

if TYPE_CHECKING:
    from facetric.report.comparison_picture import draw_comparison, save_comparison
    from facetric.report.curve_pictures import draw_curves, save_curves
    from facetric.report.failure_mode import FailureMode
    from facetric.report.image_thumbnails import Thumbnails
    from facetric.report.page import report_run, write_report
    from facetric.report.run_pictures import draw_run
    from facetric.report.run_record import EmbeddedImages, RunRecord, read_run
    from facetric.report.tsne_map import ThumbnailMap, draw_map, tsne_positions

__all__ = [
    "EmbeddedImages",
    "FailureMode",
    "RunRecord",
    "ThumbnailMap",
    "Thumbnails",
    "draw_comparison",
    "draw_curves",
    "draw_map",
    "draw_run",
    "read_run",
    "report_run",
    "save_comparison",
    "save_curves",
    "tsne_positions",
    "write_report",
]

_HOMES = {
    "EmbeddedImages": "run_record",
    "FailureMode": "failure_mode",
    "RunRecord": "run_record",
    "ThumbnailMap": "tsne_map",
    "Thumbnails": "image_thumbnails",
    "draw_comparison": "comparison_picture",
    "draw_curves": "curve_pictures",
    "draw_map": "tsne_map",
    "draw_run": "run_pictures",
    "read_run": "run_record",
    "report_run": "page",
    "save_comparison": "comparison_picture",
    "save_curves": "curve_pictures",
    "tsne_positions": "tsne_map",
    "write_report": "page",
}

__getattr__, __dir__ = loaded_on_use(__name__, _HOMES, __all__)
