"""Process settings for a shared machine: threads that yield, as many as there are cores, freed memory kept.

`prepare_process` is for entry points (commands, workers, tests) and has to run before torch or scikit-learn is imported:
an OpenMP runtime reads its settings once, when it is loaded. Importing facetric as a library changes nothing; see docs/speed.md
for what to set in a program of your own.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import math
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")  # any of these counts as the user's choice
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # of malloc.h
_LARGEST = 2**31 - 1
Result = TypeVar("Result")


def prepare_process() -> None:
    """Threads that sleep while they wait, no more of them than this process's share of the cores, and freed memory kept.

    By default OpenMP's threads spin while they wait for each other. Beside any other busy process a training step then takes five
    times as long as it has to (benchmarks/busy_machine.py). What the user has set in the environment stays.
    """
    if not any(name in os.environ for name in _WAITING):
        os.environ["OMP_WAIT_POLICY"] = "passive"
    n_processes = os.environ.get("LOCAL_WORLD_SIZE", "1")  # of torchrun on this machine
    n_threads = str(max(1, available_cores() // max(1, int(n_processes) if n_processes.isdecimal() else 1)))
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(name, n_threads)
    keep_freed_memory()


def available_cores() -> int:
    """Cores that this process may use: by its affinity and by the limits of its control groups, not what the machine has."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(affinity, _control_group_limit(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))))


def _control_group_limit(membership: Path, mount: Path) -> int:
    """The tightest CPU quota (cpu.max, version 2) of the process's control group and those above it, in cores rounded up.

    joblib knows neither the groups above nor how to answer before NumPy is loaded with the number of threads that this decides.
    """
    limits = [sys.maxsize]
    with suppress(OSError, StopIteration):
        group = next(line[3:] for line in membership.read_text().splitlines() if line.startswith("0::"))
        folder = mount / group.lstrip("/")
        for place in (folder, *folder.parents[: len(folder.parents) - len(mount.parents)]):
            with suppress(OSError, ValueError, ZeroDivisionError):  # not there, or "max"
                quota, period = (place / "cpu.max").read_text().split()
                limits.append(math.ceil(float(quota) / float(period)))
    return min(limits)


def made_ahead(tasks: Iterable[Callable[[], Result]], n_threads: int | None = None) -> Iterator[Result]:
    """The results of the tasks in order, each thread a task ahead; as many threads as cores unless given."""
    n_threads = available_cores() if n_threads is None else n_threads
    if n_threads < 1:
        raise ValueError(f"n_threads must be at least 1; got {n_threads}: leave it out for one per core")
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="facetric")
    waiting: deque[Future[Result]] = deque()
    try:
        for task in tasks:
            waiting.append(pool.submit(task))
            if len(waiting) > n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def numba_threads() -> int:
    """numba.get_num_threads(), with torch's number left as it is.

    The first call in a process starts numba's threads, and that sets the OpenMP thread count, which torch shares: its sums would
    change from then on.
    """
    import numba

    torch = sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    n_threads: int = numba.get_num_threads()
    if torch is not None and torch.get_num_threads() != before:
        torch.set_num_threads(before)
    return n_threads


def blas_threads(n: int) -> Any:
    """A context in which NumPy's products take n threads each.

    The libraries are looked for once: a search through all that is loaded takes longer than a small clustering.
    """
    return _libraries().limit(limits=n, user_api="blas")


@functools.cache
def _libraries() -> Any:
    import numpy  # noqa: F401  its library has to be there to be found
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()


@functools.cache  # metadata are read and parsed each time
def installed_version(package: str) -> str:
    """The version of an installed package; that of its module where another package stands in for it, as pillow-simd does."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        module = importlib.import_module({"pillow": "PIL"}.get(package, package.replace("-", "_")))
        return str(getattr(module, "__version__", "unknown"))


def keep_freed_memory() -> bool:
    """Tell glibc to reuse freed blocks of any size; True if it does. Elsewhere nothing happens.

    glibc gives large blocks back to the system as soon as they are freed, and every new one is mapped, zeroed and faulted in page
    by page. For a network on a CPU that takes as long as the network itself (benchmarks/memory.py).
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library
        return False
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _LARGEST), (_TOP_PAD, 2**26))
    done = [mallopt(ctypes.c_int(name), ctypes.c_int(value)) == 1 for name, value in settings]
    return all(done)


@contextmanager
def left_out(package: str) -> Iterator[None]:
    """While this lasts, a package that was not imported yet is as if it was not installed."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]
