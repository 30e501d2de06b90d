"""`facetric evaluate RUN`: files, splits, processes, errors."""

import json

import pytest
from typer.testing import CliRunner

from evaluation.run_folders import make_pictures, make_run
from facetric.cli.main import app
from facetric.embedder import Vectors
from facetric.evaluation import EvaluationReport, evaluate
from facetric.runs import open_run


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_pictures(tmp_path_factory.mktemp("data") / "pictures")


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_run_is_embedded_scored_and_printed(tmp_path, root):
    run = make_run(tmp_path, root=root)
    result = invoke("evaluate", run, "--restarts", 2)
    assert result.exit_code == 0, result.output
    report, kept = EvaluationReport.load(run / "evaluation.json"), Vectors.load(run / "embeddings.npz")
    assert (report.n_images, report.n_classes, kept.vectors.shape) == (24, 6, (24, 16))
    assert report.source["checkpoint"] == "best.safetensors"
    assert report.source["views"] == "center crop"
    assert report.facility_location.scores is not None
    again = evaluate(kept.vectors, kept.labels, n_restarts=2)
    assert (again.recall_at_k, again.nmi, again.map_at_r) == (report.recall_at_k, report.nmi, report.map_at_r)
    assert all(text in result.output for text in ("NMI", "R@8", f"{100 * report.recall_at_k[1]:.2f}", "evaluation.json"))
    assert {path.name for path in run.iterdir()} == {
        *(
            "config.toml",
            "manifest.json",
            "environment.json",
            "checkpoints",
            "evaluation.json",
            "embeddings.npz",
            ".evaluated.lock",
        )
    }
    assert json.loads((run / "evaluation.json").read_text())["source"]["split"] == "test"


def test_splits_have_files_of_their_own_and_share_no_class(tmp_path, root):
    run = make_run(tmp_path, root=root, checkpoint="last")
    labels = {}
    for split in ("test", "validation", "train"):
        ending = "" if split == "test" else f"-{split}"
        open_run(run).evaluate(split=split, n_restarts=1, facility=False)
        labels[split] = set(Vectors.load(run / f"embeddings{ending}.npz").labels.tolist())
        report = EvaluationReport.load(run / f"evaluation{ending}.json")
        assert report.source["split"] == split
        assert report.source["checkpoint"] == "last.safetensors"
    assert sum(map(len, labels.values())) == len(set.union(*labels.values())) == 12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "tests"], "split must be one of test, validation, train; got 'tests'"),
        (["--checkpoint", "first"], "checkpoint must be one of best, last"),
        (["--k", 24], r"K (24) exceeds the 23 images"),
        (["--memory", 0], "memory_gib must be above 0"),
        (["--no-facility", "--restarts", 0], "or pass --restarts 5"),
        (["--device", "tpu"], "device must be one of auto, cpu"),
    ],
)
def test_bad_options_end_in_one_line(tmp_path, root, arguments, message):
    run = make_run(tmp_path, root=root)
    result = invoke("evaluate", run, *arguments)
    assert result.exit_code == 2
    assert not (run / "embeddings.npz").exists()  # refused before the work, not after it
    assert message in result.output
    assert result.output.count("\n") == 1


def test_a_run_without_a_checkpoint_says_so(tmp_path, root):
    run = make_run(tmp_path, root=root, checkpoint=None)
    result = invoke("evaluate", run)
    assert result.exit_code == 2
    assert "has no checkpoint" in result.output
    assert f"facetric resume {run}" in result.output


def test_what_is_no_run_says_so(tmp_path, root):
    assert "does not exist" in invoke("evaluate", tmp_path / "nothing").output
    assert "no config.toml" in invoke("evaluate", tmp_path).output
    run = make_run(tmp_path, root=root)
    (run / "config.toml").write_text("[data")
    assert "cannot be read as TOML" in invoke("evaluate", run).output
    (run / "config.toml").write_text("[run]\nseed = 1\n")
    assert "data is missing" in invoke("evaluate", run).output
    broken = make_run(tmp_path, name="broken", root=root)
    (broken / "checkpoints" / "best.safetensors").write_text("no tensors")
    result = invoke("evaluate", broken)
    assert result.exit_code == 2
    assert result.output.count("\n") == 1


def test_json_is_the_file_and_nothing_else(tmp_path, root):
    run = make_run(tmp_path, root=root)
    result = CliRunner().invoke(app, ["evaluate", str(run), "--restarts", "1", "--no-facility", "--json"])
    assert result.exit_code == 0
    assert result.stdout == (run / "evaluation.json").read_text()
