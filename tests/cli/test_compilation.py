"""Kernels are compiled once on a machine, in two processes."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import time
from facetric.cli.errors import compile_kernels, is_compiled
from facetric.metrics.kernels import rank_kernels
print(is_compiled(rank_kernels.count_others), end=" ")
start = time.perf_counter()
{call}
from facetric.losses.solver import exchange
print(is_compiled(rank_kernels.count_others), is_compiled(exchange._sweep), f"{{time.perf_counter() - start:.1f}}")
"""


def run(cache: Path, call: str) -> list[str]:
    environment = {"NUMBA_CACHE_DIR": str(cache), "PATH": "/usr/bin:/bin"}
    program = PROGRAM.format(call=call)
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    ).stdout.split()


def test_kernels_that_are_not_in_the_cache_are_noticed(tmp_path: Path) -> None:
    assert run(tmp_path, "")[:3] == ["False", "False", "False"]


@pytest.mark.slow
def test_after_compilation_all_kernels_are_in_the_cache_and_the_next_start_is_fast(tmp_path: Path) -> None:
    first = run(tmp_path, "compile_kernels()")
    assert first[:3] == ["False", "True", "True"]
    again = run(tmp_path, "compile_kernels()")
    assert again[:3] == ["True", "True", "True"]
    assert float(again[3]) < float(first[3]) / 2
