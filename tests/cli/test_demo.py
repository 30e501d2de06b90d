"""`facetric demo` on a few characters and steps: the whole way, a second time, and after Ctrl-C."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from facetric.cli.main import app
from facetric.embedder import encode
from facetric.embedder.heads import closed_form_head
from facetric.evaluation import EvaluationReport, evaluate
from facetric.runs import open_run, read_config
from facetric.runs.manifest import new_images
from facetric.runs.recipes import recipe
from facetric.runs.scoring import start_network
from facetric.training.feed import split_images

FEW = ("data.options.min_images=17", "batches.size=24", "model.dim=16", "run.threads=1", "run.log_every=1")
ROOT = Path(__file__).parent.parent.parent


def run_demo(*settings):
    return CliRunner().invoke(app, ["demo", *(part for setting in (*FEW, *settings) for part in ("--set", setting))])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder in which the demo has been shown, and what it said."""
    folder = tmp_path_factory.mktemp("demo")
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield folder, run_demo("run.steps=3")
    finally:
        os.chdir(before)


def test_it_is_the_run_of_the_committed_configuration():
    assert recipe("glyphs").config == read_config(ROOT / "configs" / "glyphs.toml")


def test_it_goes_the_whole_way(place):
    folder, result = place
    assert result.exit_code == 0, result.stderr
    names = {path.relative_to(folder / "runs" / "demo").as_posix() for path in (folder / "runs" / "demo").rglob("*")}
    assert {"config.toml", "checkpoints/best.safetensors", "embeddings.npz", "evaluation.json", "report.html"} <= names
    assert "figures/tsne_map.png" not in names
    for command in ("facetric data check", "facetric train --data folder --root", "facetric evaluate runs/"):
        assert command in result.stdout


def test_a_demo_that_was_killed_at_its_start_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "demo" / "checkpoints").mkdir(parents=True)
    result = run_demo("run.steps=3")
    assert result.exit_code == 2
    assert "the demo was killed before it began to train: remove runs/demo" in result.stderr.splitlines()[-1]


def test_the_table_has_the_scores_before_and_after_training(place):
    folder, result = place
    report = EvaluationReport.load(folder / "runs" / "demo" / "evaluation.json")
    assert report.baselines.keys() == {"raw pixels", "untrained network", "closed-form head on pixels"}
    for row, found in {**report.baselines, "trained network": report}.items():
        line = next(line for line in result.stdout.splitlines() if f"│ {row} " in line)
        for score in (*found.recall_at_k.values(), found.nmi, found.map_at_r):
            assert f"{100 * score:.2f}" in line


def test_every_stage_is_announced(place):
    _, result = place
    for words in (
        "training: 3 steps",
        "scores of raw pixels",
        "  untrained network",
        "scores of closed-form head on pixels",
        "  k-means",
        "  map",
    ):
        assert words in result.stderr


def test_the_untrained_network_is_that_of_step_0(place):
    folder = place[0] / "runs" / "demo"
    config = read_config(folder / "config.toml")
    _, held_out = split_images(new_images(config.data, validate=True), config.data, validate=True)
    vectors = encode(start_network(open_run(folder)), held_out.images)
    scores = evaluate(vectors, held_out.labels, n_restarts=1, seed=config.run.seed)
    row = json.loads((folder / "metrics.jsonl").read_text().splitlines()[0])
    assert row["step"] == 0
    assert row["validation"]["map_at_r"] == pytest.approx(scores.map_at_r, abs=1e-6)


def test_the_closed_form_on_pixels_is_fitted_to_the_training_characters(place):
    run = open_run(place[0] / "runs" / "demo")
    train, test = (run.images(split)[0] for split in ("train", "test"))
    pad = ((0, 0), (run.config.data.pad,) * 2, (run.config.data.pad,) * 2)
    head = closed_form_head(np.pad(train.images, pad).reshape(len(train), -1), train.labels, 16)
    scores = evaluate(head(np.pad(test.images, pad).reshape(len(test), -1)), test.labels, n_restarts=1, seed=run.config.run.seed)
    assert run.evaluation().baselines["closed-form head on pixels"].map_at_r == pytest.approx(scores.map_at_r, abs=1e-6)


def test_a_second_time_everything_is_there_already(place):
    folder, first = place
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("*.json")}
    started = time.monotonic()
    second = run_demo("run.steps=3")
    assert second.exit_code == 0
    assert second.stderr.count("already done") == 3
    assert second.stdout.split("report.html")[0] == first.stdout.split("report.html")[0]
    assert all(path.stat().st_mtime_ns == at for path, at in times.items())
    assert time.monotonic() - started < 30


def test_other_settings_are_not_mixed_with_an_earlier_demo(place):
    result = run_demo("run.steps=4")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("facetric demo: runs/demo has other settings than this demo: run.steps is 3")


@pytest.mark.slow
def test_after_an_interrupt_it_goes_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "runs" / "demo" / "metrics.jsonl"
    settings = ("run.steps=24", "run.validate_every=0")

    def interrupt():
        while not (log.is_file() and '"loss"' in log.read_text()):
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)

    watcher = threading.Thread(target=interrupt, daemon=True)
    watcher.start()
    stopped = run_demo(*settings)
    watcher.join()
    assert stopped.exit_code == 130
    assert stopped.stderr.endswith("facetric demo: start it again to continue\n")
    assert not (tmp_path / "runs" / "demo" / "evaluation.json").exists()
    done = run_demo(*settings)
    assert done.exit_code == 0, done.stderr
    assert "runs/demo exists and is not finished" in done.stderr
    steps = [line for line in done.stderr.splitlines() if line.startswith("step ")]
    assert "24/24" in steps[-1]
    assert " 1/24" not in done.stderr
