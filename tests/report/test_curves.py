"""The curves show what was logged, in the values that were logged, and tolerate what was not."""

import json
import math

import numpy as np
from PIL import Image

from facetric.report.curve_pictures import draw_curves, save_curves

FULL = [
    {
        "step": 10 * i,
        "loss": 5.0 / (i + 1),
        "facility_score": -20.0 + i,
        "oracle_score": -21.0 + i,
        "margin": 0.4 / (i + 1),
        "nmi": 1 - 0.4 / (i + 1),
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
    lines = lines_of(draw_curves(FULL))
    for label, key in (("F", "facility_score"), ("F̃", "oracle_score"), ("Δ", "margin"), ("γ", "margin_weight")):
        (data,) = [data for (_, name), data in lines.items() if name == label]
        np.testing.assert_allclose(data, [(row["step"], row[key]) for row in FULL[:-1]])
    titles = {title for title, _ in lines}
    assert {"Loss", "NMI of the batch clustering", "Learning rates"} <= titles
    assert any(title.startswith("Validation") for title in titles)


def test_a_baseline_without_medoids_has_no_panel_for_them():
    rows = [{"step": 1, "loss": 1.0, "nmi": None, "margin_weight": None}, {"step": 2, "loss": 0.5, "nmi": None}]
    assert {title for title, _ in lines_of(draw_curves(rows))} == {"Loss"}


def test_gaps_stay_gaps():
    data = lines_of(draw_curves([{"step": 1, "loss": 1.0}, {"step": 2, "loss": math.nan}, {"step": 3, "loss": 2.0}]))
    ((_, values),) = data.items()
    assert np.isnan(values[1, 1])
    assert np.isfinite(values[[0, 2], 1]).all()


def test_no_rows_give_a_picture_that_says_so():
    figure = draw_curves([])
    assert "No step" in figure.axes[0].texts[0].get_text()


def test_a_half_written_line_is_passed_over_and_the_file_opens(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in FULL) + '{"step": 60, "lo')
    with Image.open(save_curves(path, tmp_path / "figures" / "curves.png", title="run 🐈 <b> $x_", dpi=50)) as picture:
        assert picture.size[0] == 600
        assert np.asarray(picture.convert("L")).std() > 5


def test_curves_can_be_told_apart_without_color():
    figure = draw_curves([{"step": i, "validation": {f"recall_at_{k}": 0.1 * i for k in (1, 2, 4, 8)}} for i in range(3)])
    styles = [line.get_linestyle() for line in figure.axes[0].get_lines()]
    assert len(set(styles)) == 4
