"""The figures show the numbers they are given: the rows of a comparison, and what was logged, and they tolerate what was not."""

import math

import numpy as np
import pytest
from PIL import Image

from facetric.evaluation import Comparison, Row, Score
from facetric.report import save_comparison
from facetric.report.cards import panels
from facetric.report.figures import draw_comparison, draw_curves, write_plot

ROWS = (
    Row("Clustering (paper)", 0, {"NMI": Score(59.23), "R@1": Score(48.18)}),
    Row("triplet (3 seeds)", 3, {"NMI": Score(61.9, 0.1), "R@1": Score(51.6, 0.2), "MAP@R": Score(16.5, 0.1)}),
    Row("facility $x$ (3 seeds)", 3, {"NMI": Score(61.5, 0.2), "R@1": Score(51.9, 0.2), "MAP@R": Score(16.3, 0.1)}),
)
COMPARISON = Comparison("cub", "test", ("NMI", "R@1", "MAP@R"), ROWS, ())


def test_a_panel_per_score_with_every_row_at_its_value():
    figure = draw_comparison(COMPARISON)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["NMI", "R@1", "MAP@R"]
    first, _, last = figure.axes
    assert [label.get_text() for label in first.get_yticklabels()] == [row.name for row in ROWS]
    dots = [line.get_xydata()[0].tolist() for line in first.get_lines() if line.get_marker() == "o"]
    assert dots == [[59.23, 0], [61.9, 1], [61.5, 2]]
    assert [line.get_xydata()[0].tolist() for line in last.get_lines() if line.get_marker() == "o"] == [[16.5, 1], [16.3, 2]]
    assert [text.get_text() for axes in figure.axes for text in axes.texts] == ["61.90", "51.90", "16.50"]


def test_the_papers_dots_are_hollow_and_spreads_are_drawn():
    axes = draw_comparison(COMPARISON).axes[0]
    fills = [line.get_markerfacecolor() for line in axes.get_lines() if line.get_marker() == "o"]
    assert fills[0] == "white"
    assert fills[1] != "white"
    ends = [segment[:, 0].tolist() for bars in axes.collections for segment in bars.get_segments()]
    assert ends == [pytest.approx([61.8, 62.0]), pytest.approx([61.3, 61.7])]


def test_a_picture_is_written_where_it_is_asked_for(tmp_path):
    path = save_comparison(COMPARISON, tmp_path / "new" / "table.png")
    assert path.stat().st_size > 5_000


FULL = [
    {
        "step": 10 * i,
        "loss": 5.0 / (i + 1),
        "facility_score": -20.0 + i,
        "oracle_score": -21.0 + i,
        "margin": 0.4 / (i + 1),
        "batch_nmi": 1 - 0.4 / (i + 1),
        "margin_weight": 16 * 0.94**i,
        "backbone_lr": 1e-5,
        "head_lr": 1e-4,
        "timing": {"images_per_second": 400.0},
    }
    for i in range(6)
] + [{"step": 50, "validation": {"recall_at_1": 0.7, "nmi": 0.6}}]


def lines_of(figure):
    return {
        (axes.get_title(loc="left"), line.get_label()): line.get_xydata() for axes in figure.axes for line in axes.get_lines()
    }


def test_every_quantity_of_the_paper_has_its_curve_with_the_logged_values():
    lines = lines_of(draw_curves(panels(FULL)))
    for label, key in (("F", "facility_score"), ("F̃", "oracle_score"), ("Δ", "margin"), ("γ", "margin_weight")):
        (data,) = [data for (_, name), data in lines.items() if name == label]
        np.testing.assert_allclose(data, [(row["step"], row[key]) for row in FULL[:-1]])
    titles = {title for title, _ in lines}
    assert {"Loss", "NMI of the batch clustering", "Learning rates"} <= titles
    assert {"R@1", "NMI", "batch NMI", "head lr"} <= {name for _, name in lines}
    assert any(title.startswith("Validation") for title in titles)


def test_a_baseline_without_medoids_has_no_panel_for_them():
    rows = [{"step": 1, "loss": 1.0, "batch_nmi": None, "margin_weight": None}, {"step": 2, "loss": 0.5, "batch_nmi": None}]
    assert {title for title, _ in lines_of(draw_curves(panels(rows)))} == {"Loss"}


def test_gaps_stay_gaps():
    rows = [{"step": 1, "loss": 1.0}, {"step": 2, "loss": math.nan}, {"step": 3, "loss": 2.0}]
    data = lines_of(draw_curves(panels(rows)))
    ((_, values),) = data.items()
    assert np.isnan(values[1, 1])
    assert np.isfinite(values[[0, 2], 1]).all()


def test_the_picture_of_curves_opens(tmp_path):
    figure = draw_curves(panels(FULL), title="run 🐈 <b> $x_")
    with Image.open(write_plot(figure, tmp_path / "figures" / "curves.png", dpi=50)) as picture:
        assert picture.size[0] == 600
        assert np.asarray(picture.convert("L")).std() > 5


def test_curves_can_be_told_apart_without_color():
    rows = [{"step": i, "validation": {f"recall_at_{k}": 0.1 * i for k in (1, 2, 4, 8)}} for i in range(3)]
    figure = draw_curves(panels(rows))
    styles = [line.get_linestyle() for line in figure.axes[0].get_lines()]
    assert len(set(styles)) == 4
