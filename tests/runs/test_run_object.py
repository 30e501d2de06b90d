"""One object owns a run folder: results are tied to what they were made from, and stale ones are noticed."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import facetric
from evaluation.run_folders import make_config, make_pictures, make_run, nothing
from facetric.embedder import Vectors, build_network
from facetric.files import checksummed, part_of, remove_stale_parts
from facetric.report import write_report
from facetric.report.run_record import read_run
from facetric.runs import Run, open_run
from facetric.runs.states import cut_rows, read_rows


@pytest.fixture
def evaluated(tmp_path):
    run = make_run(tmp_path / "runs", root=make_pictures(tmp_path / "pictures"))
    open_run(run).evaluate(n_restarts=1, facility=False)
    return open_run(run)


def test_the_public_door_gives_config_manifest_embedder_embeddings_and_evaluation(evaluated):
    run = facetric.open_run(evaluated.path)
    assert run.config.data.name == "folder"
    assert run.manifest.count("test")[0] == len(run.embeddings()) == run.evaluation().n_images == 24
    assert facetric.load(run.path).dim == run.embeddings().vectors.shape[1] == 16
    assert run.evaluation().source["embeddings"] == run.embeddings().fingerprint
    assert run.evaluation().source["manifest"] == run.manifest.fingerprint


def test_scores_of_other_embeddings_are_noticed_by_compare_and_report(evaluated):
    """A kill between embeddings and scores used to leave old scores beside new embeddings, and the report mixed them."""
    found = evaluated.embeddings()
    replace(found, vectors=found.vectors[:, ::-1].copy()).save(evaluated.embeddings_file())
    with pytest.raises(ValueError, match=r"scores of other embeddings .*facetric evaluate .* again"):
        evaluated.evaluation()
    with pytest.raises(ValueError, match="scores of other embeddings"):
        facetric.runs.compare_runs([evaluated.path])
    record = read_run(evaluated.path)
    assert not record.scores
    assert any("scores of other embeddings" in note for note in record.notes)


def test_results_of_an_earlier_checkpoint_are_noticed(evaluated):
    evaluated.save(build_network("glyphnet", dim=16, weights="none", seed=5), "best")
    for read in (evaluated.embeddings, evaluated.evaluation):
        with pytest.raises(ValueError, match=r"made from an earlier best.safetensors: run `facetric evaluate"):
            read()


def test_a_report_knows_what_it_was_made_from(evaluated):
    assert not evaluated.report_is_current()
    write_report(evaluated.path, figures=False)
    assert evaluated.report_is_current()
    open_run(evaluated.path).evaluate(n_restarts=2, facility=False)
    assert not evaluated.report_is_current()


def test_two_evaluations_at_once_are_refused_in_one_line(evaluated):
    with evaluated.locked("evaluated"), pytest.raises(OSError, match="is being evaluated by another process"):
        open_run(evaluated.path).evaluate()


@pytest.mark.parametrize("bit", [0, 200, "middle"])
def test_a_flipped_bit_in_the_embeddings_is_one_line(evaluated, bit):
    file = evaluated.embeddings_file()
    content = bytearray(file.read_bytes())
    content[len(content) // 3 if bit == "middle" else bit] ^= 4
    file.write_bytes(content)
    with pytest.raises(ValueError, match="damaged or holds no vectors"):
        Vectors.load(file)


def test_a_damaged_row_costs_no_good_ones(tmp_path):
    """Resume used to delete everything after it."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"ste\n{"step": 2}\n{"step": 3}\n{"step": 4}\n{"st')
    cut_rows(path, after=3)
    assert path.read_text() == '{"step": 1}\n{"ste\n{"step": 2}\n{"step": 3}\n'
    rows, n_broken = read_rows(path)
    assert ([row["step"] for row in rows], n_broken) == ([1, 2, 3], 1)


def test_leftovers_of_killed_writers_are_removed_and_those_of_living_ones_are_not(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    mine, other = part_of(tmp_path / "a.json"), tmp_path / "x.part"
    dead = mine.with_name(mine.name.replace(f".{os.getpid()}.", f".{child.pid}."))
    for path in (dead, mine, other):
        path.write_text("half")
    remove_stale_parts(tmp_path, tmp_path / "not there")
    assert (dead.exists(), mine.exists(), other.exists()) == (False, True, True)


def test_a_file_name_is_spelled_once():
    """Only the run knows what its files are called."""
    names = ("manifest.json", "environment.json", "metrics.jsonl", "report.html")  # config.toml is the configuration's
    spelled = {}
    for file in Path(facetric.__file__).parent.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for name in names:
            if f'/ "{name}"' in text or f"/ '{name}'" in text:
                spelled.setdefault(name, set()).add(file.name)
    assert spelled == {name: {"run.py"} for name in names}


def test_a_folder_that_is_not_a_run_is_one_line(tmp_path):
    for path, words in ((tmp_path / "nothing", "does not exist"), (tmp_path, "has no config.toml, so it is not a run")):
        with pytest.raises((ValueError, OSError), match=words):
            open_run(path)
    assert not Run(tmp_path / "nothing").report_is_current()


def test_stale_embeddings_are_not_drawn(evaluated):
    evaluated.save(build_network("glyphnet", dim=16, weights="none", seed=5), "best")
    record = read_run(evaluated.path)
    assert record.images is None
    assert any("earlier best.safetensors" in note for note in record.notes)


def test_results_of_another_manifest_are_noticed(evaluated, tmp_path):
    other = make_run(tmp_path / "other", root=make_pictures(tmp_path / "more", n_classes=10))
    evaluated.manifest_file.write_text(Run(other).manifest_file.read_text())
    with pytest.raises(ValueError, match="made with another manifest"):
        open_run(evaluated.path).embeddings()


def test_a_start_that_failed_leaves_no_folder_and_one_that_was_killed_is_told_apart(tmp_path):
    config = make_config(tmp_path / "runs", root=tmp_path / "pi\udce9s")
    with pytest.raises(ValueError, match="must be UTF-8 text"):
        Run.of(config).create(config, {}, nothing())
    assert not Run.of(config).path.exists()
    Run.of(config).path.mkdir(parents=True)
    with pytest.raises(ValueError, match="killed at its start: remove it"):
        Run.of(config).refuse_existing()


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[]", checksummed({"chosen": "other"})])
def test_a_run_without_a_readable_choice_says_nothing_about_it(tmp_path, content):
    run = Run(tmp_path)
    if content is not None:
        run.choice_file.write_bytes(content)
    assert run.why_chosen() == ""


def test_a_choice_is_told_in_its_own_words(tmp_path):
    run = Run(tmp_path)
    run.choice_file.write_bytes(checksummed({"why": "chosen: …"}))
    assert run.why_chosen() == "chosen: …"
