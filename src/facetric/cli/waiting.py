"""Progress of long work: a bar on a terminal, a line elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

import typer

from facetric.cli.errors import is_first_process
from facetric.progress import OnStep


@contextmanager
def steps_shown(*, lines: bool = False) -> Iterator[OnStep]:
    """A bar per step on a terminal; elsewhere nothing, or a line per step with `lines`. Only the first process of torchrun."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    messages = Console(stderr=True)
    is_first = is_first_process()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=messages, transient=True, disable=not (messages.is_terminal and is_first)) as progress:
        tasks: dict[str, TaskID] = {}

        def update(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = progress.add_task(step, total=total)
                if lines and is_first and not messages.is_terminal:
                    typer.echo(step, err=True)
            progress.update(tasks[step], completed=done, total=total)

        yield update


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
