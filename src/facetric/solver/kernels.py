"""How the solver's kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit

Index = int | np.integer[Any]  # inside kernels integers have the width and sign that they were given

F = TypeVar("F", bound=Callable[..., Any])


def inner_kernel(*, fastmath: frozenset[str] = frozenset()) -> Callable[[F], F]:
    """A kernel that only kernels call: the wrapper for calls from Python, which takes long to compile, is left out."""
    compiled: Callable[[F], F] = njit(  # type: ignore[call-overload]
        cache=True, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath=set(fastmath)
    )
    return compiled
