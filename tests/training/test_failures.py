"""What stops a run says so in one line, and overwrites nothing."""

import os
import shutil

import numpy as np
import pytest
import typer

from facetric.cli.errors import one_line_errors
from facetric.runs.config_file import to_toml
from training.tiny_runs import tiny_config


def one_line(log, command="train"):
    """The line of the error: the last one, and the only one that the command speaks in its own name."""
    lines = [line for line in log.read_text().splitlines() if line.startswith(f"facetric {command}: ")]
    assert len(lines) == 1, log.read_text()
    assert "Traceback" not in log.read_text()
    assert log.read_text().splitlines()[-1] == lines[0]
    return lines[0]


@pytest.fixture
def config_file(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(to_toml(tiny_config(tmp_path / "runs")))
    return path


def test_a_full_disk(server, config_file, tmp_path):
    log, run = tmp_path / "log", tmp_path / "runs" / "tiny"
    assert server.run("train", config_file, log=log, file_size_limit=200_000) == 1
    assert f"cannot write {run / 'checkpoints'}/" in one_line(log)
    assert "safetensors: File too large; what was saved before is untouched" in one_line(log)
    assert not [path.name for path in (run / "checkpoints").iterdir() if path.name.endswith(".part")]
    assert server.run("resume", run, log=log) == 0  # space was found


def test_a_run_folder_that_cannot_be_made(server, config_file, tmp_path):
    (tmp_path / "file").write_text("in the way")
    log = tmp_path / "log"
    assert server.run("train", config_file, "--set", f"run.folder={tmp_path / 'file'}", log=log) == 1
    assert f"cannot create the run folder {tmp_path / 'file' / 'tiny'}" in one_line(log)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(server, config_file, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    log = tmp_path / "log"
    assert server.run("train", config_file, "--set", f"run.folder={tmp_path / 'closed'}", log=log) == 1
    assert "Permission denied" in one_line(log)


def test_an_existing_run_is_not_overwritten(server, config_file, tmp_path):
    run, log = tmp_path / "runs" / "tiny", tmp_path / "log"
    run.mkdir(parents=True)
    (run / "precious").write_text("mine")
    assert server.run("train", config_file, log=log) == 2
    assert f"{run} exists and is not overwritten" in one_line(log)
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
        (["run.best_metric=recall"], "run.best_metric must be one of"),
        (["batches.size=3000"], "lower class_ratio"),
        (["run.precision=fp16"], "needs a GPU"),
        (["optimizer.warmup_steps=6"], "warmup_steps (6) must be below run.steps (6)"),
        (["steps=1"], "--set takes table.key=value"),
    ],
)
def test_a_configuration_that_cannot_be_a_run_leaves_no_folder(server, config_file, tmp_path, settings, words):
    log = tmp_path / "log"
    overrides = [word for setting in settings for word in ("--set", setting)]
    assert server.run("train", config_file, *overrides, log=log) == 2
    assert words in one_line(log)
    assert not (tmp_path / "runs" / "tiny").exists()


def test_pictures_that_would_fill_the_memory_are_refused(server, config_file, tmp_path):
    log = tmp_path / "log"
    for setting, words in (
        ("data.options.size=100000", "size must be at most 256"),
        ("data.pad=1024", "data.pad is too large: with 1024 pixels on every side"),
    ):
        log.unlink(missing_ok=True)
        assert server.run("train", config_file, "--set", "data.options.min_images=16", "--set", setting, log=log) == 2
        assert words in one_line(log)


def test_memory_that_is_used_up_is_one_line(capsys):
    with pytest.raises(typer.Exit) as ended, one_line_errors("embed"):
        np.empty((2**40, 2**20), dtype=np.uint8)
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err.startswith("facetric embed: there is not enough memory: Unable to allocate")


def test_weights_of_the_wrong_shape(server, config_file, tmp_path):
    import torch
    from safetensors.torch import save_file

    from facetric.embedder import build_network

    state = build_network("glyphnet", weights="none").backbone.state_dict()
    first = next(name for name, tensor in state.items() if tensor.ndim == 4)
    save_file({**{k: v.contiguous() for k, v in state.items()}, first: torch.zeros(3, 3, 3, 3)}, tmp_path / "w.safetensors")
    log = tmp_path / "log"
    assert server.run("train", config_file, "--set", f"model.weights={tmp_path / 'w.safetensors'}", log=log) == 2
    assert first in one_line(log)
    assert not (tmp_path / "runs").exists()


def test_resuming_what_is_no_run(server, tmp_path):
    log = tmp_path / "log"
    assert server.run("resume", tmp_path / "nothing", log=log) == 2
    assert "does not exist: pass a run folder" in one_line(log, "resume")
    shutil.rmtree(tmp_path / "nothing", ignore_errors=True)
    (tmp_path / "empty").mkdir()
    log.unlink()
    assert server.run("resume", tmp_path / "empty", log=log) == 2
    assert "has no config.toml" in one_line(log, "resume")
