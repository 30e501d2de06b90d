"""A run folder that was damaged, or came from somebody else: nothing is used silently, nothing is written elsewhere."""

import json
import logging
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import facetric
from evaluation.run_folders import make_config, make_pictures, make_run
from facetric.cli.main import app
from facetric.clustering import calibrate
from facetric.files import checksummed
from facetric.runs import ConfigError, Run, RunFolderError, open_run, read_config
from facetric.runs.config_file import to_toml
from facetric.runs.manifest import Manifest
from facetric.runs.states import append_row, cut_rows, read_rows
from facetric.training.loggers import say_differences


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    place = tmp_path_factory.mktemp("evaluated")
    run = make_run(place, root=make_pictures(place / "pictures", n_classes=16))
    open_run(run).evaluate(n_restarts=1)
    return run


@pytest.fixture
def run(evaluated, tmp_path):
    shutil.copytree(evaluated, tmp_path / "run")
    return Run(tmp_path / "run")


def test_the_user_may_edit_the_configuration(run):
    text = run.config_file.read_text()
    edited = text.replace("margin_weight = 1.0", "margin_weight = 2.0").replace('root = "', 'root = "/elsewhere')
    assert edited != text
    run.config_file.write_text(edited)
    assert Run(run.path).config.data.root.startswith("/elsewhere")
    assert "margin_weight = 2.0" in to_toml(read_config(run.config_file))


def test_a_comment_that_ends_in_a_hash_is_a_comment(run):
    run.config_file.write_text(f"# tuned, study {'0a' * 32}\n{run.config_file.read_text()}")
    assert Run(run.path).config == run.config


def test_a_run_of_0_2_is_refused_in_one_line_with_a_way_out(run):
    text, dim = run.config_file.read_text(), run.config.model.dim
    assert text.startswith("format = 3\n")
    run.config_file.write_text(text.removeprefix("format = 3\n"))
    with pytest.raises(ConfigError, match=r"was made by facetric 0.2, .*: train it again, as in `facetric train ") as refused:
        open_run(run.path)
    assert len(str(refused.value).splitlines()) == 1
    assert read_config(run.config_file).model.dim == dim  # and can be trained again
    run.config_file.write_text(text.replace("format = 3", "format = 4"))
    with pytest.raises(ConfigError, match="has the format 4, and facetric reads 3: install"):
        open_run(run.path)


def test_a_damaged_or_older_pair_model_is_named_when_a_model_is_loaded(run, caplog):
    vectors = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    kept, embedder = run.network_file("best").with_name("best.pair_model.json"), facetric.load(run.path)
    embedder.save_pair_model(calibrate(vectors, np.arange(40) % 8), "eight classes")
    assert facetric.load(run.path).fitted_to == "eight classes"
    text = kept.read_text()
    digit = text.index("weight") + len('weight": -0.')
    older = {"model": embedder.fingerprint, "classes": "", "pair_model": embedder.pair_model.as_dict() | {"format": 0}}
    for damaged, why in (
        (text[:digit] + str((int(text[digit]) + 1) % 10) + text[digit + 1 :], "its checksum is wrong"),
        (checksummed(older).decode(), "a stored pair model must have format 1; got 0: calibrate again"),
    ):
        kept.write_text(damaged)
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="facetric"):
            assert facetric.load(run.path).fitted_to == ""
        assert [record.getMessage() for record in caplog.records] == [f"{kept} is damaged ({why}): run `facetric evaluate` again"]


def test_a_damaged_environment_is_said(run):
    run.environment_file.write_text(run.environment_file.read_text()[:-9])
    said = []
    say_differences(run.environment_file, {}, said.append)
    assert "environment.json is damaged (" in said[0]


def test_a_damaged_row_is_left_out_and_cuts_nothing(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for step in range(1, 8):
        append_row(path, {"step": step, "loss": step / 8})
    lines = path.read_text().splitlines(keepends=True)
    lines[2] = lines[2].replace('"step": 3', '"step" 9')
    lines[4] = lines[4].replace("}", "")
    path.write_text("".join(lines))
    cut_rows(path, after=7)
    rows, n_damaged = read_rows(path)
    assert ([row["step"] for row in rows], n_damaged) == ([1, 2, 4, 6, 7], 2)
    assert path.read_text() == "".join(lines)
    assert rows[0] == {"step": 1, "loss": 0.125}


def test_a_number_of_too_many_digits_in_the_configuration_is_said(run):
    run.config_file.write_text(f"steps = {'9' * 5000}\n")
    result = invoke("compare", run.path)
    assert result.exit_code == 2
    assert f"{run.config_file} cannot be read as TOML" in result.stderr
    result = invoke("report", run.path, "--no-images", "--no-figures")
    assert result.exit_code == 0, result.stderr
    assert "config.toml is damaged" in result.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no disk that is always full")
def test_a_row_that_cannot_be_written_names_the_file():
    with pytest.raises(OSError, match="No space left on device") as caught:
        append_row(Path("/dev/full"), {"step": 1})
    assert caught.value.filename == "/dev/full"


@pytest.mark.parametrize("name", ["metrics.jsonl", "figures", "wandb", "checkpoints/last.safetensors", "evaluation.json"])
def test_nothing_is_written_through_a_link_in_a_run_folder(run, tmp_path, name):
    precious = tmp_path / "precious"
    is_folder = name in ("figures", "wandb")
    if is_folder:
        precious.mkdir()
    else:
        precious.write_text("mine")
    link = run.path / name
    link.unlink(missing_ok=True)
    link.symlink_to(precious)
    result = invoke("evaluate", run.path)
    assert result.exit_code == 1, result.stderr
    assert f"cannot write {link}: is a symbolic link" in result.stderr.splitlines()[-1]
    assert "free some space" not in result.stderr
    with pytest.raises(RunFolderError, match=r"cannot write .*: is a symbolic link"), run.locked():  # as train and resume do
        pass
    result = invoke("report", run.path, "--no-images")
    assert "Traceback" not in result.stderr
    assert (list(precious.iterdir()) == []) if is_folder else precious.read_text() == "mine"


@pytest.mark.skipif(os.name != "posix", reason="elsewhere names hold no control characters")
def test_the_name_of_a_run_folder_cannot_speak_to_the_terminal(run, tmp_path, monkeypatch):
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_, **__: False)  # as on a terminal
    odd = run.path.rename(tmp_path / "run\x1b[31m\n")
    for command in (["evaluate", odd, "--restarts", 1], ["report", odd, "--no-images"]):
        result = invoke(*command)
        assert result.exit_code == 0, result.stderr
        assert "\x1b" not in result.output
        assert "run\\x1b[31m\\n" in result.output


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_the_report_of_a_read_only_run_goes_elsewhere(run, tmp_path):
    run.path.chmod(0o500)
    assert invoke("report", run.path, "--output", tmp_path / "page.html").exit_code == 0


@pytest.mark.skipif(os.name != "posix", reason="names are Unicode elsewhere")
def test_images_whose_names_are_not_utf8_are_evaluated_and_reported(tmp_path):
    root = make_pictures(tmp_path / "pictures", n_classes=8)
    for path in list(root.rglob("*.png")):
        path.rename(path.with_name(os.fsdecode(b"caf\xe9") + path.name))
    run = make_run(tmp_path, root=root)
    assert open_run(run).evaluate(n_restarts=1).n_images == 16
    assert all("\udce9" in name for name in Run(run).embeddings().names)
    result = invoke("report", run)
    assert result.exit_code == 0, result.stderr
    assert Run(run).report_file.is_file()


@pytest.mark.skipif(os.name != "posix", reason="names are Unicode elsewhere")
def test_a_root_that_is_not_utf8_is_refused_and_leaves_no_folder(tmp_path):
    root = make_pictures(tmp_path / os.fsdecode(b"caf\xe9"), n_classes=8)
    config = make_config(tmp_path / "runs", root=root)
    with pytest.raises(ConfigError, match=r"must be UTF-8 text; .* is not: rename the folder"):
        Run.of(config).create(config, {}, Manifest("none", (), (), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.str_), ()))
    assert not (tmp_path / "runs").exists()


def test_a_run_killed_at_its_start_is_told_from_other_folders(tmp_path, evaluated):
    run = Run(tmp_path / "run")
    (run.path / "checkpoints").mkdir(parents=True)
    run.manifest_file.write_text(json.dumps({}))
    assert run.was_killed_at_start()
    (run.path / "notes.txt").write_text("mine")
    assert not run.was_killed_at_start()
    assert not Run(evaluated).was_killed_at_start()
