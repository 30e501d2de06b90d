"""The six walks of ARCHITECTURE.md: how often one room calls another, counted while the walk runs. Counts may only fall."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HOUSE = runpy.run_path(str(ROOT / "benchmarks" / "house.py"))

AT_MOST = {"step": 9, "train": 35, "evaluate": 35, "cluster": 30, "index": 30, "serve": 30}


@pytest.mark.parametrize("walk", HOUSE["WALKS"])
def test_a_walk_goes_down_and_calls_few_doors(walk):
    calls = HOUSE["walk_calls"](ROOT, walk)
    assert calls
    assert not HOUSE["upwards"](calls, HOUSE["allowed"](ROOT))
    assert len(calls) <= AT_MOST[walk], calls
