"""Inputs that are right, nearly right and wrong, at every door: the right number, or a ValueError of one line."""

import warnings

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from torture.doors import DOORS

SLOW = {"pair_model": 0.1, "evaluation": 0.3}  # fewer of what takes long


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_a_door_gives_the_right_number_or_a_line(door):
    @settings(
        max_examples=max(1, round(settings.default.max_examples * SLOW.get(door.__name__, 1.0))),
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(st.data())
    def tried(data):
        with warnings.catch_warnings(action="ignore"):
            door(data.draw)

    tried()
