"""Every evaluation carries the same scores for what there was before training."""

import shutil

import numpy as np
import pytest
from safetensors.torch import save_file
from typer.testing import CliRunner

from evaluation.run_folders import make_pictures, make_run
from facetric.cli.main import app
from facetric.embedder import build_network, encode
from facetric.embedder.heads import closed_form_head
from facetric.evaluation import EvaluationReport, evaluate
from facetric.report.run_record import read_run
from facetric.runs import Run, compare_runs, open_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A place with photos and the weights of a small network."""
    place = tmp_path_factory.mktemp("before")
    make_pictures(place / "pictures", n_classes=20, n_images=6)
    network = build_network("test_efficientnet", weights="none", seed=7).backbone
    save_file({name: tensor.contiguous() for name, tensor in network.state_dict().items()}, place / "weights.safetensors")
    return place


@pytest.fixture(scope="module", autouse=True)
def cache(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FACETRIC_CACHE", str(folder / "cache"))
        yield


def pretrained_run(folder, **options):
    model = {"backbone": "test_efficientnet", "dim": 8, "weights": str(folder / "weights.safetensors"), "head_init": "orthogonal"}
    return Run(make_run(folder, root=folder / "pictures", size=164, model=model, **options))


@pytest.fixture(scope="module")
def run(folder):
    run = pretrained_run(folder, name="first")
    run.evaluate(n_restarts=2)
    return run


def same_scores(a, b):
    return all(getattr(a, name) == pytest.approx(getattr(b, name), abs=1e-9) for name in ("recall_at_k", "map_at_r", "nmi"))


def test_the_record_has_the_pretrained_features_and_the_closed_form_head_at_the_dimension_of_the_run(run):
    report = run.evaluation()
    assert [(name, one.dim) for name, one in report.baselines.items()] == [("pretrained features", 256), ("closed-form head", 8)]
    network = build_network("test_efficientnet", dim=None, weights=run.config.model.weights, size=164)
    test, train = (run.images(split)[0] for split in ("test", "train"))
    features = encode(network, test.source)
    known = encode(network, train.source)
    assert same_scores(report.baselines["pretrained features"], evaluate(features, test.labels, n_restarts=2))
    closed = closed_form_head(known, train.labels, 8)
    assert same_scores(report.baselines["closed-form head"], evaluate(closed(features), test.labels, n_restarts=2))
    assert report.baselines["closed-form head"].source["shrinkage"] == closed.shrinkage


def test_it_is_in_the_file_in_print_on_the_page_and_in_the_comparison(run):
    report = run.evaluation()
    assert EvaluationReport.from_json(report.to_json()) == report
    lines = str(report).splitlines()
    assert [line.split("  ")[0] for line in lines[3:6]] == ["pretrained features", "closed-form head", "this run"]
    rows = read_run(run.path).scores["rows"]
    names = ["first", "before: pretrained features, d = 256", "before: closed-form head, d = 8"]
    assert [row["name"] for row in rows] == names
    table = compare_runs([run.path])
    assert [(row.name, row.n_runs) for row in table.rows] == [
        ("pretrained features, d = 256", 0),
        ("closed-form head, d = 8", 0),
        ("first", 1),
    ]
    assert table.rows[0].scores["R@1"].mean == 100 * report.baselines["pretrained features"].recall_at_k[1]


def test_runs_that_started_from_the_same_share_the_rows_of_their_start(run, folder):
    other = pretrained_run(folder, name="other", margin_weight=2.0, seed=1)
    other.evaluate(n_restarts=2)
    names = [row.name for row in compare_runs([run.path, other.path]).rows]
    assert names == ["pretrained features, d = 256", "closed-form head, d = 8", "first", "other"]


def test_features_are_computed_once_for_all_runs_on_the_images(run, folder, caplog):
    caplog.set_level("INFO", "facetric")
    again = pretrained_run(folder, name="again")
    again.evaluate(n_restarts=2)
    assert "computing activations" not in caplog.text
    assert again.evaluation().baselines == run.evaluation().baselines


def test_without_training_images_there_is_no_closed_form_and_the_rest_is_scored(folder, tmp_path, caplog):
    shutil.copytree(folder / "pictures", tmp_path / "pictures")
    moved = pretrained_run(folder, name="moved")
    train, _ = moved.images("train")
    text = moved.config_file.read_text().replace(str(folder / "pictures"), str(tmp_path / "pictures"))
    moved.config_file.write_text(text)
    for name in {path.parent.name for path in train.images}:
        shutil.rmtree(tmp_path / "pictures" / name)
    report = open_run(moved.path).evaluate(n_restarts=1)
    assert list(report.baselines) == ["pretrained features"]
    assert "not all that there was before training can be scored" in caplog.text


def test_a_network_from_random_weights_is_scored_as_it_starts(tmp_path):
    pictures = make_pictures(tmp_path / "pictures")
    path = make_run(tmp_path, root=pictures, seed=3)  # its checkpoint is the network of step 0
    report = open_run(path).evaluate(n_restarts=1)
    assert list(report.baselines) == ["untrained network"]
    start = report.baselines["untrained network"]
    orthogonal = build_network("glyphnet", dim=16, weights="none", size=36, seed=3).with_head(kind="orthogonal", seed=3)
    dataset, _ = Run(path).images("test")
    assert same_scores(start, evaluate(encode(orthogonal, dataset.source), dataset.labels, n_restarts=1))


def test_it_can_be_left_out(run, folder):
    bare = pretrained_run(folder, name="bare")
    result = CliRunner().invoke(app, ["evaluate", str(bare.path), "--no-baselines", "--restarts", "1"])
    assert result.exit_code == 0, result.output
    assert bare.evaluation().baselines == {}
    assert "this run" not in result.output
    assert np.isfinite(bare.evaluation().nmi)
