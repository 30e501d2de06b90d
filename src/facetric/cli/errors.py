"""Common to all commands: messages on stderr, errors in one line, kernels compiled before they are needed, and the exit codes.

0    done
1    it failed while running, or problems were found
2    usage error: options, configuration or data that cannot work
130  stopped by SIGINT (Ctrl-C)
143  stopped by SIGTERM
"""

from __future__ import annotations

import errno
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import typer

FAILED, USAGE = 1, 2
_NO_SPACE = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))


@contextmanager
def one_line_errors(command: str, *, quiet: bool = False, when_interrupted: str = "stopped") -> Iterator[None]:
    """Turn an error into one line and its exit code: ValueError and ImportError (an extra is missing) are
    usage errors, OSError and RuntimeError failures.

    What the library logs is printed meanwhile, warnings only when `quiet`.
    """
    try:
        with _messages(quiet=quiet):
            yield
    except typer.Exit:
        raise
    except KeyboardInterrupt as stop:
        say(command, when_interrupted)
        raise typer.Exit(128 + (stop.args[0] if stop.args else signal.SIGINT)) from None
    except MemoryError as error:
        say(command, f"there is not enough memory{': ' * bool(str(error))}{error}")
        raise typer.Exit(FAILED) from None
    except (ValueError, ImportError, OSError, RuntimeError) as error:
        from facetric.images import ImageError

        line = _as_options(command, str(error) or type(error).__name__)
        if isinstance(error, OSError) and error.filename is not None and error.strerror:  # as the system gives it
            way_out = ": free some space, then run the command again" if error.errno in _NO_SPACE else ""
            line = f"{os.fsdecode(error.filename)}: {error.strerror}{way_out}"
        if isinstance(error, ImageError):
            line = f"{line} (`facetric data check` lists all such files)"
        if type(error).__name__ != "PeerError" or is_first_process():  # reported by the failing process and by the first
            say(command, line)
        raise typer.Exit(USAGE if isinstance(error, ValueError | ImportError) else FAILED) from None


@contextmanager
def _messages(*, quiet: bool) -> Iterator[None]:
    logger, handler = logging.getLogger("facetric"), _Lines()
    before = logger.level, logger.propagate
    logger.setLevel(logging.WARNING if quiet or not is_first_process() else logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm

        from facetric.text import printable

        lines = record.getMessage().splitlines()
        with tqdm.external_write_mode():  # above a progress bar, if there is one
            typer.echo("\n".join(map(printable, lines)), err=True)  # to the current stderr


def say(command: str, line: str) -> None:
    """One line on stderr; names in it cannot send control characters to the terminal."""
    from facetric.text import printable

    typer.echo(f"facetric {command}: {printable(' '.join(line.split()))}", err=True)


def is_first_process() -> bool:
    """Whether this is the first process of torchrun, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def _as_options(command: str, line: str) -> str:
    """The line with arguments, such as `top=10` and `overwrite=True`, as options of the command: --top 10, --overwrite."""
    from facetric.cli.main import app

    found: Any = typer.main.get_command(app)
    for word in command.split():
        found = getattr(found, "commands", {}).get(word)
    for option in getattr(found, "params", ()):
        for value, space in ((r"True\b", ""), (r"(?=\w)", " "), ("", "")):
            name = rf"(?<![\w.])(?:n_)?{option.name.removeprefix('max_')}={value}"
            line = re.sub(name, option.opts[0] + space, line)
    return line


@contextmanager
def said_if_slow(line: str, *, seconds: float = 1.0) -> Iterator[None]:
    """Print the line on stderr if the block takes longer than `seconds`."""
    timer = Timer(seconds, lambda: typer.echo(line, err=True))
    timer.daemon = True
    if is_first_process():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def compile_kernels() -> None:
    """Compile what is not in numba's cache on disk, with a message if that takes a while; it happens once on a machine.

    It takes one core: the solver and the scores are compiled in a process each. What fails there is compiled later, here.
    """
    with said_if_slow("loading torch"):
        from facetric.losses.solver import sweeps
        from facetric.metrics.kernels import count_others

    tasks = {("facetric.losses", "compile_kernels"): sweeps, (__name__, "compile_scores"): count_others}
    programs = [f"from {module} import {name}; {name}()" for (module, name), kernel in tasks.items() if not is_compiled(kernel)]
    none = subprocess.DEVNULL
    others = [subprocess.Popen([sys.executable, "-c", program], stdin=none, stdout=none) for program in programs]
    try:
        with said_if_slow("compiling the solver and the scores, about half a minute, only once", seconds=3.0):
            for other in others:
                other.wait()
    finally:
        for other in others:  # interrupted: it does nothing to those that have ended
            other.kill()
            other.wait()


def compile_scores() -> None:
    """The kernels of `evaluate`."""
    import numpy as np

    from facetric.evaluation import evaluate

    evaluate(np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32), np.arange(32) // 4, n_restarts=1)


def is_compiled(kernel: Any) -> bool:
    """Whether numba's cache on disk knows the kernel, of whatever version."""
    module = Path(sys.modules[kernel.py_func.__module__].__file__ or "").stem
    return any(Path(kernel.stats.cache_path).glob(f"{module}.{kernel.py_func.__qualname__}-*.nbi"))
