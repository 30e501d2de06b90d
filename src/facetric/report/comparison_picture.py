"""A comparison of runs as a picture: a dot per row with its spread over seeds, a panel per score."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from facetric.evaluation import Comparison
from facetric.report.style import PALETTE, PLOT_STYLE, write_plot

_OURS, _PAPERS = PALETTE[1], PALETTE[6]


def draw_comparison(comparison: Comparison, columns: Sequence[str] = ("NMI", "k-means NMI", "R@1", "MAP@R")) -> Figure:
    """The rows from top to bottom as in the table; filled dots are runs with ± sd over seeds, rings are the paper's figures."""
    shown = [column for column in columns if column in comparison.columns]
    with matplotlib.rc_context(PLOT_STYLE):
        size = (2.2 + 2.6 * max(len(shown), 1), 0.9 + 0.28 * len(comparison.rows))
        figure = Figure(figsize=size, layout="constrained")
        title = f"{comparison.dataset}, {comparison.split} split, percent"
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        for axes, column in zip(figure.subplots(1, max(len(shown), 1), sharey=True, squeeze=False)[0], shown, strict=False):
            _draw_column(axes, comparison, column)
    return figure


def save_comparison(comparison: Comparison, path: str | os.PathLike[str], *, dpi: int = 110) -> Path:
    """Draw the comparison into a picture."""
    return write_plot(draw_comparison(comparison), Path(path), dpi=dpi)


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
