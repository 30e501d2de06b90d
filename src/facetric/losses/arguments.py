"""Arguments of the losses, checked when a loss is made: a ValueError says the rule, the value and the way out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def nonnegative(name: str, value: Any, *, hint: str) -> float:
    """A finite number, 0 or more."""
    if not _is_a(value, int | float | np.number) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} must be a finite number, 0 or more; got {value!r}: {hint}")
    return float(value)


def whole(name: str, value: Any, *, at_least: int, hint: str) -> int:
    """An integer that is not below `at_least`."""
    if not _is_a(value, int | np.integer) or value < at_least:
        raise ValueError(f"{name} must be a whole number, {at_least} or more; got {value!r}: {hint}")
    return int(value)


def flag(name: str, value: Any) -> bool:
    """True or False, and nothing that merely counts as one."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False; got {value!r}: pass a bool")
    return bool(value)


def _is_a(value: Any, kinds: Any) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool | np.bool_ | complex | np.complexfloating)
