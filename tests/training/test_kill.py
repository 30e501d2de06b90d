"""A run that is killed and resumed ends as the one that was left alone: the same rows, bitwise the same weights."""

import signal
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import processes
from facetric.runs.config_file import to_toml
from facetric.runs.states import read_newest_state, states
from training.tiny_runs import rows_of, tiny_config

STEPS = {"steps": 20, "checkpoint_every": 3, "validate_every": 8}


def same_weights(run, original, name):
    one, other = (load_file(folder / "checkpoints" / name) for folder in (run, original))
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    config = folder / "tiny.toml"
    config.write_text(to_toml(tiny_config(folder / "runs", run=STEPS)))
    start = time.monotonic()
    assert processes.run("train", config, log=folder / "log") == 0, (folder / "log").read_text()
    return config, folder / "runs" / "tiny", time.monotonic() - start


def killed_and_resumed(uninterrupted, tmp_path, *, n_kills, seed):
    config, _, duration = uninterrupted
    rng = np.random.default_rng(seed)
    run, log = tmp_path / "runs" / "tiny", tmp_path / "log"
    n_killed = 0
    arguments = ["train", config, "--set", f"run.folder={tmp_path / 'runs'}"]
    while n_killed < n_kills:
        child = processes.start(*arguments, log=log)
        processes.wait_for((run / "config.toml").exists)
        time.sleep(rng.uniform(0, 0.8 * duration))
        child.send_signal(signal.SIGKILL)
        status = processes.wait(child)
        assert status in (0, -signal.SIGKILL), log.read_text()
        n_killed += status != 0
        arguments = ["resume", run]
    assert processes.run(*arguments, log=log) == 0, log.read_text()
    return run


def check(run, original):
    assert rows_of(run) == rows_of(original)
    assert same_weights(run, original, "last.safetensors")
    assert same_weights(run, original, "best.safetensors")


@pytest.mark.slow
def test_two_kills_change_nothing(uninterrupted, tmp_path):
    check(killed_and_resumed(uninterrupted, tmp_path, n_kills=2, seed=1), uninterrupted[1])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_twenty_kills_change_nothing(uninterrupted, tmp_path, seed):
    check(killed_and_resumed(uninterrupted, tmp_path, n_kills=2, seed=100 + seed), uninterrupted[1])


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_the_step_and_says_how_to_go_on(uninterrupted, tmp_path, number, status):
    config, original, _ = uninterrupted
    run, log = tmp_path / "runs" / "tiny", tmp_path / "log"
    child = processes.start("train", config, "--set", f"run.folder={tmp_path / 'runs'}", log=log)
    processes.wait_for(lambda: processes.contains(run / "metrics.jsonl", '"step": 5,'))
    child.send_signal(number)
    assert processes.wait(child) == status
    assert f"facetric resume {run}" in log.read_text()
    saved = read_newest_state(run / "checkpoints")["step"]
    assert saved == rows_of(run)[-1]["step"] < STEPS["steps"]
    if number == signal.SIGTERM:
        assert processes.run("resume", run, log=log) == 0
        check(run, original)


def test_two_resume_states_are_kept(uninterrupted):
    assert [step for step, _ in states(uninterrupted[1] / "checkpoints")] == [18, 20]
