"""The kernels of a run, compiled before it starts. It happens once on a machine: numba caches them on disk.

Compilation takes one core. On a fresh machine the scores are compiled in a process of their own while this one compiles the loss.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from facetric.cli.waiting import said_if_slow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def compile_kernels() -> None:
    """Compile what is not in numba's cache, with a message if that takes a while."""
    from facetric.machine import available_cores
    from facetric.metrics.kernels import count_others

    other = None
    if available_cores() > 1 and not is_compiled(count_others):
        program = f"from {__name__} import compile_scores; compile_scores()"
        other = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        with said_if_slow("loading torch"):
            import torch

            from facetric.losses import FacilityLocationLoss

        n_threads = torch.get_num_threads()
        with said_if_slow("compiling the solver and the scores, about half a minute, only once", seconds=3.0):
            FacilityLocationLoss()(*map(torch.from_numpy, _batch()))
            if other is not None:
                other.wait()
            compile_scores()  # from the cache, or here if the other process failed
        torch.set_num_threads(n_threads)  # numba's first parallel kernel resets them
    finally:
        if other is not None and other.poll() is None:  # interrupted
            other.kill()
            other.wait()


def compile_scores() -> None:
    """The kernels of `evaluate`."""
    from facetric.evaluation import evaluate

    evaluate(*_batch(), n_restarts=1)


def is_compiled(kernel: Any) -> bool:
    """Whether numba's cache on disk knows the kernel, of whatever version."""
    module = Path(sys.modules[kernel.py_func.__module__].__file__ or "").stem
    return any(Path(kernel.stats.cache_path).glob(f"{module}.{kernel.py_func.__qualname__}-*.nbi"))


def _batch() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    import numpy as np

    return np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32), np.arange(32) // 4
