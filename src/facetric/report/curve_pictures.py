"""The curves of a run from its metrics.jsonl: loss, F and F̃, Δ, batch NMI, γ, learning rates, validation scores over steps."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from facetric.report.curves import Panel, panels
from facetric.report.style import PALETTE, PLOT_STYLE, write_plot
from facetric.runs import read_rows

_N_COLUMNS = 3
_MARKERS_UP_TO = 30  # points of a curve that are marked one by one


def draw_curves(rows: Iterable[dict[str, Any]], *, title: str = "") -> Figure:
    """A panel for each quantity that the rows hold, in a fixed order; quantities that were not logged are left out."""
    made = panels(rows)
    n_rows = max(1, math.ceil(len(made) / _N_COLUMNS))
    with matplotlib.rc_context(PLOT_STYLE):
        figure = Figure(figsize=(4.0 * _N_COLUMNS, 2.5 * n_rows + (0.4 if title else 0.0)), layout="constrained")
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        if not made:
            axes = figure.subplots()
            axes.axis("off")
            axes.text(0.5, 0.5, "No step has been logged", ha="center", va="center", color="#777777")
            return figure
        grid = figure.subplots(n_rows, _N_COLUMNS, squeeze=False).ravel()
        for axes, panel in zip(grid, made, strict=False):
            _draw_panel(axes, panel)
        for axes in grid[len(made) :]:
            axes.axis("off")
    return figure


def save_curves(metrics: str | os.PathLike[str], path: str | os.PathLike[str], *, title: str = "", dpi: int = 120) -> Path:
    """Draw the rows of a metrics.jsonl into a picture; half-written lines are skipped."""
    rows, _ = read_rows(Path(metrics))
    return write_plot(draw_curves(rows, title=title), Path(path), dpi=dpi)


def _draw_panel(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title)
    for number, curve in enumerate(panel.curves):
        values = [math.nan if value is None else value for value in curve.values]
        axes.plot(
            curve.steps,
            values,
            label=curve.name,
            color=PALETTE[(number + 1) % len(PALETTE)],
            linestyle=("-", "--", ":", "-.")[number % 4],  # readable without color
            marker="o" if len(values) <= _MARKERS_UP_TO else None,
            markersize=3,
        )
    axes.margins(x=0.02)
    axes.set_xlabel("step", loc="right", fontsize=8, color="#777777", labelpad=1)
    if len(panel.curves) > 1:
        axes.legend(fontsize=8, handlelength=2.2, ncols=2 if len(axes.lines) > 4 else 1)  # low enough to fit between lines
