"""What stops a run says so in one line, and overwrites nothing."""

import os
import warnings

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import processes
from facetric.cli.errors import one_line_errors
from facetric.cli.main import app
from facetric.runs.config_file import to_toml
from training.tiny_runs import tiny_config


def one_line(said, command="train"):
    """The line of the error: the last one, and the only one that the command speaks in its own name."""
    lines = [line for line in said.splitlines() if line.startswith(f"facetric {command}: ")]
    assert len(lines) == 1, said
    assert "Traceback" not in said
    assert said.splitlines()[-1] == lines[0]
    return lines[0]


def refusal(*arguments, code=2):
    """The line of a command that ends with this code."""
    with warnings.catch_warnings(action="ignore"):  # in a test they are errors
        done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == code, done.output
    return one_line(done.stderr, arguments[0])


@pytest.fixture
def config_file(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(to_toml(tiny_config(tmp_path / "runs")))
    return path


def test_a_full_disk(config_file, tmp_path):
    log, run = tmp_path / "log", tmp_path / "runs" / "tiny"
    assert processes.run("train", config_file, log=log, file_size_limit=200_000) == 1
    line = one_line(log.read_text())
    assert f"cannot write {run / 'checkpoints'}/" in line
    assert "safetensors: File too large; what was saved before is untouched" in line
    assert not [path.name for path in (run / "checkpoints").iterdir() if path.name.endswith(".part")]
    assert processes.run("resume", run, log=log) == 0  # space was found


def test_a_run_folder_that_cannot_be_made(config_file, tmp_path):
    (tmp_path / "file").write_text("in the way")
    line = refusal("train", config_file, "--set", f"run.folder={tmp_path / 'file'}", code=1)
    assert f"cannot create the run folder {tmp_path / 'file' / 'tiny'}" in line


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(config_file, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    assert "Permission denied" in refusal("train", config_file, "--set", f"run.folder={tmp_path / 'closed'}", code=1)


def test_an_existing_run_is_not_overwritten(config_file, tmp_path):
    run = tmp_path / "runs" / "tiny"
    run.mkdir(parents=True)
    (run / "precious").write_text("mine")
    assert f"{run} exists and is not overwritten" in refusal("train", config_file)
    assert [path.name for path in run.iterdir()] == ["precious"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["data.name=cub", "data.root=nowhere", "data.options={}"], "nowhere"),
        (["data.name=cube"], "did you mean 'cub'?"),
        (["model.weights=missing.safetensors"], "missing.safetensors"),
        (["model.backbone=glyphnett"], "did you mean glyphnet"),
        (["loss.margn_weight=1"], "unknown key 'margn_weight' in [loss]; did you mean 'margin_weight'?"),
        (["loss.name=npairs"], "loss 'npairs' takes no margin_weight"),
        (["batches.class_ratio=0.5", "batches.images_per_class=2"], "both set the classes per batch: give one"),
        (["run.best_metric=recall"], "run.best_metric: Input should be 'recall_at_1', "),
        (["batches.size=3000"], "lower class_ratio (--set batches.size=…, batches.class_ratio=… or batches.images_per_class=…)"),
        (["run.precision=fp16"], "needs a GPU"),
        (["optimizer.warmup_steps=6"], "warmup_steps (6) must be below run.steps (6)"),
        (["steps=1"], "--set takes table.key=value"),
    ],
)
def test_a_configuration_that_cannot_be_a_run_leaves_no_folder(config_file, tmp_path, settings, words):
    assert words in refusal("train", config_file, *(word for setting in settings for word in ("--set", setting)))
    assert not (tmp_path / "runs" / "tiny").exists()


def test_pictures_that_would_fill_the_memory_are_refused(config_file):
    for setting, words in (
        ("data.options.size=100000", "size must be at most 256"),
        ("data.pad=1024", "data.pad: Input should be less than or equal to 64; got 1024"),
    ):
        assert words in refusal("train", config_file, "--set", "data.options.min_images=16", "--set", setting)


def test_memory_that_is_used_up_is_one_line(capsys):
    with pytest.raises(typer.Exit) as ended, one_line_errors("embed"):
        np.empty((2**40, 2**20), dtype=np.uint8)
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err.startswith("facetric embed: there is not enough memory: Unable to allocate")


def test_weights_of_the_wrong_shape(config_file, tmp_path):
    import torch
    from safetensors.torch import save_file

    from facetric.embedder import build_network

    state = build_network("glyphnet", weights="none").backbone.state_dict()
    first = next(name for name, tensor in state.items() if tensor.ndim == 4)
    save_file({**{k: v.contiguous() for k, v in state.items()}, first: torch.zeros(3, 3, 3, 3)}, tmp_path / "w.safetensors")
    assert first in refusal("train", config_file, "--set", f"model.weights={tmp_path / 'w.safetensors'}")
    assert not (tmp_path / "runs").exists()


def test_resuming_what_is_no_run(tmp_path):
    assert "does not exist: pass a run folder" in refusal("resume", tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    assert "has no config.toml" in refusal("resume", tmp_path / "empty")
