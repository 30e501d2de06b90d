"""The report without a browser: what is in the file, whatever the run has or lacks."""

import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from evaluation.run_folders import make_run
from facetric.cli.main import app
from facetric.embedder import Vectors
from facetric.report import page as writer
from facetric.report import write_report
from facetric.report.cards import panels
from facetric.report.page import write_page
from facetric.report.run_record import RunRecord, read_run
from facetric.report.sprites import Thumbnails, pack
from facetric.runs import open_run
from images.official_layouts import write_folder
from report.report_runs import HOSTILE, clumps, photographs, thumbnails_of, write_run

RUN_FILES = ("config.toml", "environment.json", "metrics.jsonl", "embeddings.npz", "evaluation.json")


@pytest.fixture(autouse=True)
def _quick_map(monkeypatch):
    """The first two axes instead of t-SNE, which has its own tests."""
    monkeypatch.setattr(writer, "tsne_positions", lambda vectors, **options: vectors[:, :2].astype(float))


def about(path):
    """The JSON block of a page."""
    page = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data-about">(.*?)</script>', page)[1])


def quick_report(folder):
    """The page without thumbnails and figures."""
    return write_report(folder, images=False, figures=False).page


def gray(n_images, side=32):
    """Soft pictures in memory, (n, side, side)."""
    ramp = np.add.outer(np.arange(side), np.arange(side)).astype(np.uint8)
    return (ramp[None] * 3 + np.arange(n_images, dtype=np.uint8)[:, None, None]).astype(np.uint8)


def test_a_whole_run_gives_a_whole_report(tmp_path):
    names = [tmp_path / "data" / f"class {i // 10}" / f"{i}.jpg" for i in range(60)]
    for name, pixels in zip(names, gray(60), strict=True):
        name.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(name)
    made = write_report(write_run(tmp_path / "birds", dataset="cub", names=list(map(str, names))))
    path, page = made.page, about(made.page)
    assert [figure.name for figure in made.figures] == ["curves.png", "tsne_map.png"]
    assert path == tmp_path / "birds" / "report.html"
    assert page["title"] == "birds"
    assert page["n_images"] == 60
    assert page["image_names"][0] == "class 0/0.jpg"
    assert [row["name"] for row in page["scores"]["rows"]] == [
        "birds",
        "Triplet semihard (paper)",
        "Lifted struct (paper)",
        "Npairs (paper)",
        "Clustering (paper)",
    ]
    assert page["scores"]["columns"] == ["NMI", "medoid NMI", "R@1", "R@2", "R@4", "R@8", "MAP@R"]
    assert [panel["title"] for panel in page["curves"]][:3] == ["Loss", "Validation: retrieval", "Validation: clustering"]
    assert page["texts"][0]["text"] == "facetric train configs/birds.toml --set 'run.name=first try'"
    assert page["thumbnails"]["n_sheets"] == 1
    assert page["notes"] == []
    assert not list(path.parent.glob(".*"))  # nothing half-written is left


def test_other_datasets_have_no_published_rows(tmp_path):
    page = about(quick_report(write_run(tmp_path / "mine", n_images=12, n_classes=3)))
    assert [row["name"] for row in page["scores"]["rows"]] == ["mine"]


@pytest.mark.parametrize("missing", RUN_FILES)
def test_a_missing_file_is_noted_and_the_rest_is_shown(tmp_path, missing):
    folder = write_run(tmp_path / "run", n_images=12, n_classes=3)
    (folder / missing).unlink()
    page = about(quick_report(folder))
    assert any(missing in note for note in page["notes"])
    assert page["n_images"] == (0 if missing == "embeddings.npz" else 12)
    assert bool(page["curves"]) == (missing != "metrics.jsonl")
    assert bool(page["scores"]["rows"]) == (missing != "evaluation.json")


def test_a_run_that_needed_no_step_says_so(tmp_path):
    folder = write_run(tmp_path / "run", n_images=12, n_classes=3)
    (folder / "metrics.jsonl").write_text("")
    assert about(quick_report(folder))["notes"] == [
        "metrics.jsonl is empty: no step was trained, and there are no training curves."
    ]
    assert "curves.png" not in command(folder, "--no-figures").stdout


@pytest.mark.parametrize("damaged", RUN_FILES)
def test_a_damaged_file_is_never_a_crash(tmp_path, damaged):
    folder = write_run(tmp_path / "run", n_images=12, n_classes=3)
    for hurt in (b"\xff{[half", b""):
        (folder / damaged).write_bytes(hurt)
        assert any(damaged in note for note in about(quick_report(folder))["notes"])


@pytest.mark.parametrize(("n_images", "n_classes"), [(1, 1), (2, 2), (5, 1), (5, 5), (30, 1)])
def test_tiny_and_one_class_runs_have_a_report(tmp_path, n_images, n_classes):
    folder = write_run(tmp_path / "run", n_images=12, n_classes=3)
    images = clumps(n_images, n_classes)
    labels = images.class_labels.astype(np.int64)
    Image.fromarray(gray(1)[0]).save(tmp_path / "photo.png")
    Vectors(images.vectors, (str(tmp_path / "photo.png"),) * n_images, labels).save(folder / "embeddings.npz")
    made = write_report(folder)
    page = about(made.page)
    assert [figure.name for figure in made.figures] == ["curves.png", "tsne_map.png"]
    assert page["n_images"] == n_images
    assert page["n_neighbors"] == min(10, n_images - 1)


def test_vectors_that_are_no_numbers_are_noted(tmp_path):
    folder = write_run(tmp_path / "run", n_images=12, n_classes=3)
    vectors = np.full((4, 3), np.nan, dtype=np.float32)
    Vectors(vectors, tuple("abcd"), np.array([0, 0, 1, 1])).save(folder / "embeddings.npz")
    assert any("NaN" in note for note in about(quick_report(folder))["notes"])


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"is not a run folder, it has none of config\.toml"):
        read_run(tmp_path)
    with pytest.raises(ValueError, match="there is no run"):
        read_run(tmp_path / "nowhere")


def test_names_cannot_leave_their_block(tmp_path):
    images = clumps(16, 8, names=HOSTILE)
    run = RunRecord(HOSTILE[1], images=images, config=HOSTILE[1], notes=HOSTILE)
    path = write_page(tmp_path / "report.html", run, positions=images.vectors[:, :2])
    harmless = write_page(tmp_path / "other.html", RunRecord("x", images=clumps(16, 8)), positions=images.vectors[:, :2])
    page, other = path.read_text(encoding="utf-8"), harmless.read_text(encoding="utf-8")
    for mark in ("<script", "</script", "<!--", "<img"):
        assert page.count(mark) == other.count(mark)
    assert about(path)["class_names"] == list(HOSTILE)
    assert "<title>&lt;/script&gt;" in page


def test_the_page_forbids_itself_the_network(tmp_path):
    page = write_page(tmp_path / "report.html", RunRecord("x")).read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert not re.findall(r"(?:src|href)\s*=\s*[\"']?(?!#)[^\s\"'{>]*//", page)
    assert not re.findall(r"\b(?:fetch|XMLHttpRequest|WebSocket|EventSource|sendBeacon|import)\b\s*\(", page)
    assert set(re.findall(r"https?://[^\s\"']+", page)) <= {"http://www.w3.org/2000/svg"}  # a name, not an address


@pytest.mark.slow  # the budget itself is tested below, with fewer
def test_six_thousand_photographs_stay_under_30_mb(tmp_path):
    images = clumps(6000, 100)
    run = RunRecord("photographs", images=images)
    path = write_page(tmp_path / "report.html", run, positions=images.vectors[:, :2], thumbnails=photographs())
    assert path.stat().st_size < 30e6
    assert about(path)["thumbnails"]["side"] >= 64


def test_thumbnails_that_do_not_fit_are_left_out_from_the_end():
    sheets = pack(photographs(side=64), [5, 3, *range(6, 80)], n_images=80, budget=8_000)
    assert sum(map(len, sheets.sheets)) <= 8_000
    assert sheets.side == 32
    assert sheets.cells[5] == 0
    assert sheets.cells[3] == 1
    assert sheets.cells[79] == -1
    assert sheets.n_missing == 0


def test_more_images_than_thumbnails_are_said_on_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "MOST_THUMBNAILS", 40)
    images = clumps(90, 9, spread=1.5)
    run = RunRecord("many", images=images)
    page = about(write_page(tmp_path / "r.html", run, positions=images.vectors[:, :2], thumbnails=thumbnails_of(gray(90))))
    assert "only 40 of the 90 images have a thumbnail" in page["map_about"]


def test_pictures_that_cannot_be_opened_are_counted(tmp_path):
    images = clumps(6, 2)
    thumbnails = Thumbnails(lambda image_id, _: Image.open(tmp_path / f"{image_id}.jpg"))
    run = RunRecord("broken", images=images)
    page = about(write_page(tmp_path / "r.html", run, positions=images.vectors[:, :2], thumbnails=thumbnails))
    assert page["notes"] == ["6 images could not be opened and have no thumbnail."]


def test_the_clusters_are_those_of_medoid_nmi(tmp_path):
    from facetric.evaluation import EvaluationReport
    from facetric.metrics import nmi

    folder = write_run(tmp_path / "run", n_images=90, n_classes=9)
    images = read_run(folder).images
    assert nmi(images.class_labels, writer._clusters(images)) == pytest.approx(
        EvaluationReport.load(folder / "evaluation.json").facility_location.scores.nmi, abs=1e-12
    )


def test_a_failed_report_leaves_the_old_one(tmp_path, monkeypatch):
    path = write_page(tmp_path / "report.html", RunRecord("first"))
    before = path.read_bytes()
    monkeypatch.setattr(writer, "html_page", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_page(path, RunRecord("second"))
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_curves_leave_out_what_is_no_number():
    rows = [
        {"step": 1, "loss": float("nan"), "mood": "good"},
        {"step": 2, "loss": 3.0, "odd": True},
        {"loss": 1.0},
        {"step": "x"},
    ]
    (panel,) = panels(rows)
    assert panel.title == "Loss"
    assert panel.series[0].steps == (1, 2)
    assert panel.series[0].values == (None, 3.0)


def test_long_curves_keep_their_last_step():
    (panel,) = panels({"step": step, "loss": float(step)} for step in range(5001))
    assert len(panel.series[0].steps) <= 602
    assert panel.series[0].steps[-1] == 5000


def command(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_the_command_joins_the_run_with_its_dataset(tmp_path):
    root = write_folder(tmp_path / "pictures")
    from facetric.images.readers import load_dataset

    test = load_dataset("folder", root).select("test")
    folder = make_run(tmp_path, name="run", root=root, checkpoint=None, validate=False)
    write_run(folder, n_images=12, n_classes=3, config=False)
    vectors = np.random.default_rng(0).normal(size=(len(test), 4)).astype(np.float32)
    Vectors(vectors, tuple(map(str, test.images)), test.labels).save(folder / "embeddings.npz")
    result = command(folder)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].startswith(f"{folder / 'report.html'} (")
    assert result.stderr == ""
    assert {"tsne_map.png", "curves.png"} <= {file.name for file in (folder / "figures").iterdir()}
    page = about(folder / "report.html")
    assert set(page["class_names"]) == {test.class_names[label] for label in test.labels}
    assert page["thumbnails"]["n_sheets"] == 1


def test_the_command_shows_what_it_can_when_the_dataset_is_gone(tmp_path):
    root = write_folder(tmp_path / "pictures")
    folder = make_run(tmp_path, name="run", root=root, checkpoint=None, validate=False)
    write_run(folder, n_images=12, n_classes=3, config=False)
    shutil.rmtree(root)
    result = command(folder, "--no-figures", "--output", tmp_path / "elsewhere" / "page.html")
    assert result.exit_code == 0
    names = open_run(folder).manifest.class_names
    assert about(tmp_path / "elsewhere" / "page.html")["class_names"] == list(names[:3])  # the manifest knows them


def test_the_command_refuses_what_is_no_run_in_one_line(tmp_path):
    result = command(tmp_path)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "is not a run folder" in result.stderr
