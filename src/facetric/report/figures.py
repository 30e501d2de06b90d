"""Figures for print: the curves of a run and a comparison of runs, in one look that color-blind readers can read."""

from __future__ import annotations

import io
import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from facetric.evaluation import Comparison
from facetric.files import write_atomically
from facetric.report.cards import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from PIL.Image import Image

# Okabe and Ito's palette (2008), without yellow, which disappears on white.
PALETTE: tuple[str, ...] = ("#CC79A7", "#0072B2", "#E69F00", "#009E73", "#56B4E9", "#D55E00", "#555555")
PLOT_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "savefig.facecolor": "white",
    "text.parse_math": False,  # a "$" in a run name is literal
}
_OURS, _PAPERS = PALETTE[1], PALETTE[6]
_N_COLUMNS = 3
_COMPARED = ("NMI", "medoid NMI", "R@1", "MAP@R")
_MARKERS_UP_TO = 30  # points of a curve that are marked one by one


def write_plot(figure: Figure, path: str | os.PathLike[str], *, dpi: int) -> Path:
    """A figure of matplotlib in a file, in the format of its suffix; never half-written."""
    target, buffer = Path(path), io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # shown as boxes
        figure.savefig(buffer, dpi=dpi, format=target.suffix.lstrip(".").lower() or "png")
    return written(target, buffer.getvalue())


def write_png(image: Image, path: Path) -> Path:
    """An image in a file; never half-written."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=3)  # 6 is three times slower for 5% of the size
    return written(path, buffer.getvalue())


def written(path: Path, data: bytes) -> Path:
    """Make the folder and write the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, data)
    return path


def draw_curves(made: Sequence[Panel], *, title: str = "") -> Figure:
    """The panels of curves in a grid, under a title."""
    import matplotlib
    from matplotlib.figure import Figure

    n_rows = max(1, math.ceil(len(made) / _N_COLUMNS))
    with matplotlib.rc_context(PLOT_STYLE):
        figure = Figure(figsize=(4.0 * _N_COLUMNS, 2.5 * n_rows + (0.4 if title else 0.0)), layout="constrained")
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        grid = figure.subplots(n_rows, _N_COLUMNS, squeeze=False).ravel()
        for axes, panel in zip(grid, made, strict=False):
            _draw_panel(axes, panel)
        for axes in grid[len(made) :]:
            axes.axis("off")
    return figure


def _draw_panel(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title)
    for number, curve in enumerate(panel.series):
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
    if len(panel.series) > 1:
        axes.legend(fontsize=8, handlelength=2.2, ncols=2 if len(axes.lines) > 4 else 1)  # low enough to fit between lines


def draw_comparison(comparison: Comparison) -> Figure:
    """The rows from top to bottom as in the table; filled dots are runs with ± sd over seeds, rings are the paper's figures."""
    import matplotlib
    from matplotlib.figure import Figure

    shown = [column for column in _COMPARED if column in comparison.columns]
    with matplotlib.rc_context(PLOT_STYLE):
        size = (2.2 + 2.6 * max(len(shown), 1), 0.9 + 0.28 * len(comparison.rows))
        figure = Figure(figsize=size, layout="constrained")
        title = f"{comparison.dataset}, {comparison.split} split, percent"
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        for axes, column in zip(figure.subplots(1, max(len(shown), 1), sharey=True, squeeze=False)[0], shown, strict=False):
            _draw_column(axes, comparison, column)
    return figure


def save_comparison(comparison: Comparison, path: str | os.PathLike[str]) -> Path:
    """Draw a comparison of runs into a PNG, PDF or SVG: a panel per score, a dot per row with its spread over seeds."""
    return write_plot(draw_comparison(comparison), path, dpi=110)


def _draw_column(axes: Axes, comparison: Comparison, column: str) -> None:
    axes.set_title(column)
    for place, row in enumerate(comparison.rows):
        if column not in row.scores:
            continue
        score, ours = row.scores[column], row.n_runs > 0
        axes.errorbar(
            score.mean,
            place,
            xerr=score.sd,
            fmt="o",
            markersize=5,
            capsize=2,
            color=_OURS if ours else _PAPERS,
            markerfacecolor=_OURS if ours else "white",
        )
        if comparison.is_best(row, column):
            axes.annotate(f"{score.mean:.2f}", (score.mean, place), (0, 6), textcoords="offset points", ha="center", fontsize=7)
    axes.set_yticks(range(len(comparison.rows)), [row.name for row in comparison.rows])
    axes.set_ylim(len(comparison.rows) - 0.5, -0.7)
    axes.margins(x=0.12)
    axes.tick_params(left=False)
