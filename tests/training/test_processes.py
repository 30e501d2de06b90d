"""Many processes are one: the gradient, the batches, the folder, and the end."""

import json
import signal
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

import processes
from facetric.runs.config_file import to_toml
from facetric.training import resume, train
from facetric.training.processes import Processes
from training.tiny_runs import rows_of, tiny_config
from training.two_ranks import LOSS_NAMES, global_batch, gradients_of_one_step


class OneProcess:
    """Fabric's part in a gradient, without Fabric."""

    def setup_module(self, module):
        return module

    def backward(self, value):
        value.backward()


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), pytest.param("float32", 1e-5, marks=pytest.mark.slow)])
def test_the_gradient_of_two_processes_is_that_of_one(tmp_path, dtype, tolerance):
    logs = [tmp_path / "0.log", tmp_path / "1.log"]
    children = processes.start_ranks(tmp_path, dtype, logs=logs, function="training.two_ranks:gradients")
    assert processes.wait_all(children) == [0, 0], [log.read_text() for log in logs]
    images, labels = global_batch()
    for name in LOSS_NAMES:
        torch.set_default_dtype(getattr(torch, dtype))
        try:
            expected, _ = gradients_of_one_step(name, OneProcess(), Processes(torch.device("cpu")), images, labels)
        finally:
            torch.set_default_dtype(torch.float32)
        for rank in (0, 1):
            found = load_file(tmp_path / f"{name}-{rank}.safetensors")
            assert found.keys() == expected.keys()
            for key, tensor in expected.items():
                scale = max(1.0, float(tensor.abs().max()))
                torch.testing.assert_close(found[key], tensor, rtol=0, atol=tolerance * scale, msg=lambda m, k=key: f"{k}: {m}")
    solved = [json.loads((tmp_path / f"solved-{rank}.json").read_text()) for rank in (0, 1)]
    assert [counts["facility_location"] for counts in solved] == [1, 0]


def test_two_processes_train_one_run_and_stop_together(tmp_path):
    still = {"backbone_lr": 0.0, "head_lr": 0.0}  # rounding must not add up: the losses depend on the batches alone
    config = tiny_config(tmp_path / "two", run={"steps": 30, "checkpoint_every": 30, "validate_every": 0}, optimizer=still)
    (tmp_path / "tiny.toml").write_text(to_toml(config))
    logs = [tmp_path / "0.log", tmp_path / "1.log"]
    children = processes.start_ranks("train", tmp_path / "tiny.toml", logs=logs)
    run = tmp_path / "two" / "tiny"
    processes.wait_for(lambda: processes.contains(run / "metrics.jsonl", '"step": 3,'))
    children[1].send_signal(signal.SIGTERM)  # one of them
    assert processes.wait_all(children) == [143, 143], [log.read_text() for log in logs]
    assert "facetric resume" in logs[0].read_text()
    assert logs[1].read_text() == ""

    alone = train(tiny_config(tmp_path / "one", run={"steps": 3, "validate_every": 0}, optimizer=still))
    for ours, theirs in zip(rows_of(run)[:3], rows_of(alone.folder), strict=True):
        assert ours["oracle_score"] == pytest.approx(theirs["oracle_score"], rel=1e-2)
    result = resume(run)  # by one process
    assert result.finished
    assert [row["step"] for row in rows_of(run)] == list(range(1, 31))


@pytest.mark.parametrize(
    ("place", "message"), [("feed", "the disk of this process broke"), ("forward", "the memory of this process is full")]
)
def test_an_error_in_one_process_stops_all(tmp_path, place, message):
    (tmp_path / "tiny.toml").write_text(to_toml(tiny_config(tmp_path / "runs", run={"steps": 50, "validate_every": 0})))
    logs = [tmp_path / "0.log", tmp_path / "1.log"]
    function = "training.two_ranks:train_with_a_fault"
    children = processes.start_ranks(place, tmp_path / "tiny.toml", logs=logs, function=function)
    statuses = processes.wait_all(children)
    assert all(status != 0 for status in statuses), [log.read_text() for log in logs]
    assert f"facetric train: {message}" in logs[1].read_text()
    if place == "feed":  # known to the others by an exchange; an error while they communicate shows as a lost connection
        assert f"facetric train: rank 1: {message}" in logs[0].read_text()


@pytest.mark.slow
def test_torchrun(tmp_path):
    (tmp_path / "tiny.toml").write_text(to_toml(tiny_config(tmp_path / "runs")))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "facetric"]
    run = tmp_path / "runs" / "tiny"
    done = subprocess.run([*command, "train", tmp_path / "tiny.toml"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert (done.stdout + done.stderr).count(f"next: facetric evaluate {run}") == 1
    assert rows_of(run)[-1]["step"] == 6
