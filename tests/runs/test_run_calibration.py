"""A run with enough validation classes is also clustered without the number of classes."""

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
    open_run(path).evaluate(n_restarts=0)
    return Run(path)


def test_the_number_of_clusters_is_found_and_what_it_was_found_by_is_kept(run):
    report = run.evaluation()
    calibration = facetric.load(run.path).calibration
    used = {"method": "average_linkage", "threshold": calibration.threshold}
    assert report.calibrated.calibration | used == report.calibrated.calibration
    assert report.calibrated.calibration["expected"]["recall"] == pytest.approx(calibration.reached.pairwise_recall)
    assert report.calibrated.n_clusters > 1
    assert facetric.load(run.path).calibrated_on == "the validation classes of first"
    assert "clusters for 12 classes" in str(report)


def test_a_calibration_is_reused_for_its_checkpoint_and_stale_for_another(run, monkeypatch):
    monkeypatch.setattr("facetric.runs.scoring.calibrate", None)  # must not be called
    before = run.evaluation().calibrated
    assert run.evaluate(n_restarts=0).calibrated == before
    monkeypatch.undo()
    run.save(build_network("glyphnet", dim=16, weights="none", seed=5), "best")
    assert facetric.load(run.path).calibration is None
    run.evaluate(n_restarts=0)
    assert facetric.load(run.path).calibration is not None


def test_a_damaged_calibration_is_made_again(run):
    run.network_file("best").with_name("best.calibration.json").write_text("{")
    assert facetric.load(run.path).calibration is None
    run.evaluate(n_restarts=0)
    assert facetric.load(run.path).calibration is not None


def test_few_validation_classes_are_not_calibrated_on_and_test_classes_only_for_others_photos(tmp_path):
    path = make_run(tmp_path, root=make_pictures(tmp_path / "pictures", n_classes=8))
    assert open_run(path).evaluate(n_restarts=0).calibrated is None
    assert facetric.load(path).calibrated_on == "4 test classes of first"


def test_without_its_validation_images_a_run_is_still_scored(tmp_path, caplog):
    root = make_pictures(tmp_path / "pictures", n_classes=24)
    run = Run(make_run(tmp_path, root=root))
    for image, split in zip(run.manifest.images, run.manifest.splits, strict=True):
        if split == "validation":
            shutil.rmtree((root / image).parent, ignore_errors=True)
    report = run.evaluate(n_restarts=0, baselines=False)
    assert report.calibrated is None
    assert report.facility_location is not None
    assert "the number of clusters is not looked for" in caplog.text
