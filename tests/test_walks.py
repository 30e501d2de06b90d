"""The six walks of ARCHITECTURE.md: how often one room calls another, counted while the walk runs. Counts may only fall."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "benchmarks"))
from house import WALKS, allowed, upwards, walk_calls  # noqa: E402

AT_MOST = {"step": 9, "train": 84, "evaluate": 73, "cluster": 35, "index": 34, "serve": 34}  # the goal is 35


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_goes_down_and_calls_few_doors(walk):
    calls = walk_calls(ROOT, walk)
    assert calls
    assert not upwards(calls, allowed(ROOT))
    assert len(calls) <= AT_MOST[walk], calls
