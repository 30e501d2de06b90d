"""Progress of long work: a bar on a terminal, a line elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

import typer

from facetric.cli.errors import is_first_process
from facetric.progress import OnStep, steps_shown

__all__ = ["indented", "said_if_slow", "steps_shown"]


def indented(on_step: OnStep, title: str = "") -> OnStep:
    """The same steps, as parts of a stage that has been announced."""
    return lambda name, done, total: on_step(f"  {title}{name.lower()}", done, total)


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
