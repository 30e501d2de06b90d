"""The picture of a comparison shows the numbers of its table."""

import pytest

from facetric.evaluation.tables import Comparison, Row, Score
from facetric.report.comparison_picture import draw_comparison, save_comparison

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
