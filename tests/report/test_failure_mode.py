"""The failure mode: the figures say what the files say, and the experiment counts what it claims to count."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


def module_of(file):
    specification = importlib.util.spec_from_file_location(f"{file.parent.name}_{file.stem}", file)
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module  # dataclasses look for it there
    specification.loader.exec_module(module)
    return module


drawing = module_of(ROOT / "docs" / "failure_mode.py")
FailureMode, draw_panels, draw_success_rates = drawing.FailureMode, drawing.draw_panels, drawing.draw_success_rates


@pytest.fixture(scope="module")
def experiment():
    return module_of(ROOT / "benchmarks" / "failure_mode.py")


@pytest.fixture
def folder(tmp_path):
    """Two losses, one optimizer, one layout: the first solves 3 of 4 starts, the second none."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 4)
    arrays = {"steps": np.array([0, 5, 10]), "one|labels": labels}
    results = []
    for loss, n_solved, nmi in (("triplet", 3, 1.0), ("facility location", 0, 0.5)):
        key = f"one|Adam|{loss}"
        arrays[f"{key}|points"] = rng.normal(size=(3, 12, 2)).astype(np.float32)
        arrays[f"{key}|medoids"] = np.tile([0, 4, 8], (3, 1))
        arrays[f"{key}|assignment"] = np.tile(labels, (3, 1))
        arrays[f"{key}|nmi"] = np.array([0.3, 0.4, nmi])
        counts = {"successes_kmeans": n_solved, "successes_medoids": n_solved}
        results.append({"layout": "one", "optimizer": "Adam", "loss": loss, **counts})
    np.savez(tmp_path / "failure_mode.npz", **arrays)
    (tmp_path / "failure_mode.json").write_text(json.dumps({"n_starts": 4, "results": results}))
    return tmp_path


def test_panels_carry_the_nmi_of_their_end(folder):
    figure = draw_panels(FailureMode.load(folder))
    assert [axes.get_xlabel() for axes in figure.axes] == [
        f"NMI: k-means {score}, medoids 1.00" for score in ("0.30", "1.00", "0.50")
    ]
    assert [axes.get_title() for axes in figure.axes] == ["start", "triplet", "facility location"]


def test_success_rates_stand_where_the_counts_put_them(folder):
    (axes,) = draw_success_rates(FailureMode.load(folder)).axes
    shares = [float(line.get_xdata()[0]) for line in axes.get_lines() if len(line.get_xdata()) == 1]
    assert shares == [0.75, 0.75, 0.0, 0.0]


@pytest.mark.parametrize("layout", ["one", "four", "eight"])
def test_k_means_sees_every_perfect_clustering_and_no_start_is_solved(experiment, layout):
    for seed in range(5):
        points, labels = experiment.start_of(layout, seed)
        assert experiment.nmi_by_kmeans(points, labels) < 1 - 1e-9
        rng = np.random.default_rng(seed)
        perfect = 2 * experiment.scattered(rng, labels.max() + 1)[labels] + rng.normal(0, 0.2, points.shape)
        assert experiment.nmi_by_kmeans(perfect.astype(np.float32), labels) > 1 - 1e-9


def test_the_split_class_is_split_by_the_others(experiment):
    points, labels = experiment.start_of("one", 0)
    left, right = points[:5].mean(axis=0), points[5:10].mean(axis=0)
    along = (points[labels > 0] - left) @ (right - left) / ((right - left) ** 2).sum()
    assert ((along > 0) & (along < 1)).all()


def test_counted_starts_are_not_those_that_tuned(experiment):
    assert experiment.FIRST_SEED + 50 < experiment.FIRST_TUNING_SEED


def test_the_committed_results_agree_with_themselves():
    found = FailureMode.load(ROOT / "docs" / "pictures")
    for result in found.summary["results"]:
        for score in ("kmeans", "medoids"):
            values = np.array(result[f"nmi_{score}"])
            assert len(values) == result["n_starts"]
            assert result[f"successes_{score}"] == int((values > 1 - 1e-6).sum())
        best = max(row["success"] for row in result["tuning"])
        assert result["chosen"]["success"] == best


def test_the_page_shows_the_table_of_the_committed_results():
    found = FailureMode.load(ROOT / "docs" / "pictures")
    assert found.table() in (ROOT / "benchmarks" / "results" / "failure_mode.md").read_text(encoding="utf-8")
