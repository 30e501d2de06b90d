"""Figures from saved results. They read files and arrays, never the model."""

from typing import TYPE_CHECKING

from facetric.lazy import loaded_on_use

if TYPE_CHECKING:
    from facetric.figures.comparison import draw_comparison, save_comparison
    from facetric.figures.curves import draw_curves, save_curves
    from facetric.figures.failure_mode import FailureMode
    from facetric.figures.run_pictures import draw_run
    from facetric.figures.thumbnails import Thumbnails
    from facetric.figures.tsne_map import ThumbnailMap, draw_map, tsne_positions

__all__ = [
    "FailureMode",
    "ThumbnailMap",
    "Thumbnails",
    "draw_comparison",
    "draw_curves",
    "draw_map",
    "draw_run",
    "save_comparison",
    "save_curves",
    "tsne_positions",
]

_HOMES = {
    "FailureMode": "failure_mode",
    "ThumbnailMap": "tsne_map",
    "Thumbnails": "thumbnails",
    "draw_comparison": "comparison",
    "draw_curves": "curves",
    "draw_map": "tsne_map",
    "draw_run": "run_pictures",
    "save_comparison": "comparison",
    "save_curves": "curves",
    "tsne_positions": "tsne_map",
}

__getattr__, __dir__ = loaded_on_use(__name__, _HOMES, __all__)
