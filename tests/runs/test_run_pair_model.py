"""An evaluation keeps what its classes teach about which photos belong together; what has not been seen is clustered by it."""

import json
import shutil

import pytest

import facetric
from evaluation.run_folders import make_pictures, make_run
from facetric.embedder import build_network
from facetric.runs import Run, open_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    path = make_run(folder, root=make_pictures(folder / "pictures", n_classes=24))
    assert facetric.load(path).pair_model is None  # not evaluated
    open_run(path).evaluate(n_restarts=0)
    return Run(path)


def pair_model_file(run):
    return run.network_file("best").with_name("best.pair_model.json")


def test_validation_classes_teach_which_of_the_test_images_belong_together(run):
    found, report = facetric.load(run.path), run.evaluation()
    assert found.fitted_to == "the validation classes of first"
    assert found.pair_model.n_classes == 6
    clusters = facetric.PairLinkage(found.pair_model).fit(run.embeddings().vectors)
    assert report.pair_linkage.n_clusters == clusters.n_clusters_
    assert report.pair_linkage.expected["precision"]["value"] == pytest.approx(clusters.expected_.precision.value)
    assert "clusters for 12 classes (pair linkage)" in str(report)


def test_a_pair_model_is_kept_for_its_checkpoint_and_stale_for_another(run, monkeypatch):
    record = json.loads(pair_model_file(run).read_text())
    assert record["model"] == facetric.load(run.path).fingerprint
    assert record["pair_model"] == facetric.load(run.path).pair_model.as_dict()
    monkeypatch.setattr("facetric.runs.scoring.calibrate", None)  # must not be called
    before = run.evaluation().pair_linkage
    assert run.evaluate(n_restarts=0).pair_linkage == before
    monkeypatch.undo()
    run.save(build_network("glyphnet", dim=16, weights="none", seed=5), "best")
    assert (facetric.load(run.path).fitted_to, facetric.load(run.path).pair_model) == ("", None)
    run.evaluate(n_restarts=0)
    assert facetric.load(run.path).fitted_to


def test_a_damaged_pair_model_is_named_and_made_again(run, caplog):
    pair_model_file(run).write_text("{")
    assert facetric.load(run.path).pair_model is None
    assert "best.pair_model.json is damaged" in caplog.text
    run.evaluate(n_restarts=0)
    assert facetric.load(run.path).fitted_to


def test_what_0_2_kept_beside_the_checkpoint_is_not_read(run, caplog):
    pair_model_file(run).with_name("best.calibration.json").write_text('{"calibration": {"threshold": 0.5}}')
    assert facetric.load(run.path).fitted_to
    assert not caplog.text


def test_tested_classes_teach_only_about_photos_of_others(tmp_path):
    path = make_run(tmp_path, root=make_pictures(tmp_path / "pictures", n_classes=8))
    report = open_run(path).evaluate(n_restarts=0)
    assert facetric.load(path).fitted_to == "4 test classes of first"
    clusters = facetric.PairLinkage().fit(Run(path).embeddings().vectors)  # as it comes with the install
    assert report.pair_linkage.n_clusters == clusters.n_clusters_


def test_without_its_validation_images_a_run_is_still_scored(tmp_path, caplog):
    root = make_pictures(tmp_path / "pictures", n_classes=24)
    run = Run(make_run(tmp_path, root=root))
    for image, split in zip(run.manifest.images, run.manifest.splits, strict=True):
        if split == "validation":
            shutil.rmtree((root / image).parent, ignore_errors=True)
    report = run.evaluate(n_restarts=0, baselines=False)
    assert report.pair_linkage is not None
    assert "validation images cannot be used, and teach nothing about unknown classes" in caplog.text
    assert facetric.load(run.path).fitted_to == "12 test classes of first"
