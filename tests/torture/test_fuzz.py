"""Inputs that are right, nearly right and wrong, at every door: the right number, or a ValueError of one line."""

import time
import warnings

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from torture.doors import DOORS
from torture.tally import minutes, torture_seed

pytest_plugins = ["torture.fixtures"]
SLOW = {"calibration": 0.1, "evaluation": 0.3}  # fewer of what takes long


def fuzz(door, *, number, n_examples, count=lambda: None):
    @seed(number)
    @settings(
        max_examples=max(1, round(n_examples * SLOW.get(door.__name__, 1.0))),
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(st.data())
    def tried(data):
        count()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            door(data.draw)

    tried()


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_a_door_gives_the_right_number_or_a_line(door):
    fuzz(door, number=0, n_examples=25)


@pytest.mark.torture
def test_malformed_inputs(tally):
    end, number = minutes(0.1), torture_seed() * 1000
    while True:
        for door in DOORS:
            number += 1
            try:
                fuzz(door, number=number, n_examples=250, count=lambda name=door.__name__: tally.add(name))
            except Exception as failed:
                for error in getattr(failed, "exceptions", [failed]):  # Hypothesis groups different ones
                    notes = " ".join(getattr(error, "__notes__", []))
                    tally.add(door.__name__, n=0, bad=f"seed {number}: {type(error).__name__}: {str(error)[:300]} {notes[:600]}")
        if time.monotonic() > end:
            break
    assert not tally.failures, "\n".join(tally.failures[:40])
