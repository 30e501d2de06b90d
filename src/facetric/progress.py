"""Progress callbacks, and a progress bar on a terminal (nothing in a log file)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]  # called with (done, total)
OnStep = Callable[[str, int, int], None]  # called with the name of the step, how much of it is done, and how much there is


@contextmanager
def progress_bar(title: str, *, total: int | None = None, completed: int = 0) -> Iterator[Progress]:
    """A bar on stderr for the duration of the block; call what it gives with (done, total). Silent when not on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=total, completed=completed)
        yield lambda done, n: bar.update(task, completed=done, total=n)
