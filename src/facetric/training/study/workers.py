"""The processes of a study: a pool of single-threaded workers that checkpoint and stop with their parent."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import active_children, get_context, parent_process
from types import FrameType
from typing import Any, NoReturn

from facetric.machine import prepare_process

_SECONDS_TO_SAVE = 20.0
_stops: list[KeyboardInterrupt] = []  # what stopped earlier tasks of this worker


class Interrupted(KeyboardInterrupt):
    """A signal stopped the study. What was running has its checkpoint."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number


def say(line: str) -> None:
    """A progress message on stderr, from any process."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def worker_pool(n_jobs: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """`map` over `n_jobs` processes, results in order; the built-in `map` for one job.

    When the block fails or is interrupted, workers get SIGTERM: those that train save a checkpoint and stop.
    """
    if n_jobs == 1:
        yield map
        return
    others = set(active_children())
    pool = ProcessPoolExecutor(n_jobs, mp_context=get_context("spawn"), initializer=start_worker)
    try:
        with _sigterm_interrupts():
            yield lambda function, tasks: pool.map(partial(_unless_interrupted, function), tasks)
    except BaseException as error:
        for worker in set(active_children()) - others:
            worker.terminate()
        if isinstance(error, BrokenProcessPool):
            raise RuntimeError(
                "a process of the study was killed, most likely for lack of memory: start the same command again with fewer "
                "--jobs; finished trials and runs are kept"
            ) from None
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _unless_interrupted(function: Callable[[Any], Any], task: Any) -> Any:
    """The result of a task in a worker. After a signal the queue may still hold some, which are not begun."""
    if _stops:
        raise _stops[0]
    try:
        return function(task)
    except KeyboardInterrupt as stop:  # Interrupted, or a second Ctrl-C
        _stops.append(stop)
        raise


def start_worker() -> None:
    """Initialize a worker: one thread, because more threads than cores wait for each other most of the time.

    Ctrl-C reaches the workers too. Outside training they leave it to the parent, which stops them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    prepare_process()
    import numba
    import torch
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    numba.set_num_threads(1)
    torch.set_num_threads(1)
    threadpool_limits(1)
    signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM outside training. A worker that waits for work holds the lock of the queue: killed there, the others would wait for
    it for ever."""
    _stops.append(Interrupted(number))
    sys.exit(128 + number)


def _stop_with_parent() -> None:
    """Wait for the end of the study's process, then stop as if it had stopped this one: training saves a checkpoint.

    The pool's loop survives the signal and would wait for work forever.
    """
    if (parent := parent_process()) is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_SECONDS_TO_SAVE)
        os._exit(1)


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """SIGTERM raises Interrupted instead of killing this process and leaving its workers behind."""
    if threading.current_thread() is not threading.main_thread():  # only there may handlers be set
        yield
        return
    before = signal.signal(signal.SIGTERM, _raise_interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _raise_interrupted(number: int, frame: FrameType | None) -> NoReturn:
    raise Interrupted(number)
