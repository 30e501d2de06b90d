"""A process of ours on a busy machine: threads that yield, no more than there are cores, and freed memory that is kept."""

import importlib.metadata
import json
import os
import subprocess
import sys

import PIL
import pytest

from facetric.machine import _control_group_limit, available_cores, installed_version
from facetric.training import train
from training.tiny_runs import tiny_config

COUNT = """
import resource, sys
import numpy as np
from facetric.machine import keep_freed_memory

print(keep_freed_memory() if sys.argv[1] == "kept" else False)
np.ones(2**23)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    np.ones(2**23)  # 64 MiB
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(kind):
    found = subprocess.run([sys.executable, "-c", COUNT, kind], capture_output=True, text=True, check=True).stdout.split()
    return found[0] == "True", int(found[1])


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is the C library of Linux")
def test_blocks_that_are_freed_are_used_again():
    done, kept = faults("kept")
    if not done:
        pytest.skip("the C library is not glibc")
    _, given_back = faults("given back")
    assert kept < 100 < given_back


SHOW = """
import json, os
from facetric.machine import prepare_process
prepare_process()
print(json.dumps({name: os.environ.get(name) for name in ("OMP_WAIT_POLICY", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")}))
"""


def settings(**environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "NUMBA_", "GOMP_", "KMP_"))}
    command = [sys.executable, "-c", SHOW]
    return json.loads(subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, check=True).stdout)


def test_threads_wait_without_spinning_and_there_are_as_many_as_cores():
    found = settings()
    assert found["OMP_WAIT_POLICY"] == "passive"
    assert int(found["OMP_NUM_THREADS"]) == int(found["NUMBA_NUM_THREADS"]) == available_cores()


def test_what_the_user_has_set_stays():
    assert settings(OMP_WAIT_POLICY="active")["OMP_WAIT_POLICY"] == "active"
    assert settings(GOMP_SPINCOUNT="5")["OMP_WAIT_POLICY"] is None
    assert settings(OMP_NUM_THREADS="7")["OMP_NUM_THREADS"] == "7"


def test_processes_of_torchrun_share_the_cores():
    assert settings(LOCAL_WORLD_SIZE=str(4 * available_cores()))["OMP_NUM_THREADS"] == "1"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="affinity is Linux's")
def test_the_affinity_counts_not_the_machine():
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n" + SHOW
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "NUMBA_"))}
    found = subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True, check=True).stdout
    assert json.loads(found)["OMP_NUM_THREADS"] == "1"


def test_limits_of_control_groups_count_rounded_up_and_the_tightest_one(tmp_path):
    membership, mount = tmp_path / "cgroup", tmp_path / "mount"
    inner = mount / "outer" / "inner"
    inner.mkdir(parents=True)
    membership.write_text("0::/outer/inner\n")
    assert _control_group_limit(membership, mount) > 10**6
    (mount / "outer" / "cpu.max").write_text("350000 100000\n")
    (inner / "cpu.max").write_text("max 100000\n")
    assert _control_group_limit(membership, mount) == 4
    (inner / "cpu.max").write_text("150000 100000\n")
    assert _control_group_limit(membership, mount) == 2


def test_a_package_that_stands_in_for_another_is_recorded_by_its_module(monkeypatch, tmp_path):
    """pillow-simd is imported as PIL, and there are no metadata of pillow."""
    known = importlib.metadata.distribution

    def distribution(name):
        if name == "pillow":
            raise importlib.metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    installed_version.cache_clear()
    try:
        result = train(tiny_config(tmp_path, run={"steps": 3, "validate_every": 0}))
        assert json.loads(result.run.environment_file.read_text())["versions"]["pillow"] == PIL.__version__
        with pytest.raises(ImportError, match="nowhere"):
            installed_version("nowhere")
    finally:
        installed_version.cache_clear()
