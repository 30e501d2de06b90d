"""Saved results → pictures. Figures read files and arrays, never the model."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from facetric.figures.curves import draw_curves, save_curves
    from facetric.figures.failure_mode import FailureMode
    from facetric.figures.run_pictures import draw_run
    from facetric.figures.thumbnails import Thumbnails
    from facetric.figures.tsne_map import ThumbnailMap, draw_map, tsne_positions

__all__ = [
    "FailureMode",
    "ThumbnailMap",
    "Thumbnails",
    "draw_curves",
    "draw_map",
    "draw_run",
    "save_curves",
    "tsne_positions",
]

_HOMES = {
    "FailureMode": "failure_mode",
    "ThumbnailMap": "tsne_map",
    "Thumbnails": "thumbnails",
    "draw_curves": "curves",
    "draw_map": "tsne_map",
    "draw_run": "run_pictures",
    "save_curves": "curves",
    "tsne_positions": "tsne_map",
}


def __getattr__(name: str) -> Any:
    """Load matplotlib, numba and the rest on first use, so that commands start at once."""
    if name not in _HOMES:
        raise AttributeError(f"module 'facetric.figures' has no attribute {name!r}; it has {', '.join(__all__)}")
    from importlib import import_module

    return getattr(import_module(f"facetric.figures.{_HOMES[name]}"), name)
