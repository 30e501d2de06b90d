"""Progress callbacks, and a progress bar on a terminal or in a notebook (nothing in a log file)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

Progress = Callable[[int, int], None]  # called with (done, total)
OnStep = Callable[[str, int, int], None]  # called with the name of the step, how much of it is done, and how much there is

_SECONDS = 0.2  # between two changes of a bar in a notebook, which are messages to the browser


@contextmanager
def progress_bar(title: str, *, total: int | None = None, completed: int = 0) -> Iterator[Progress]:
    """A bar for the duration of the block; call what it gives with (done, total).

    On stderr of a terminal, or in the output of a notebook's cell; silent anywhere else.
    """
    if in_notebook():
        bar = NotebookBar(title, done=completed, total=total or 0)
        yield bar.update
        bar.finish()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(title, total=total, completed=completed)
        yield lambda done, n: shown.update(task, completed=done, total=n)


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook: IPython is loaded, and its shell belongs to a kernel."""
    loaded: Any = sys.modules.get("IPython")
    return loaded is not None and hasattr(loaded.get_ipython(), "kernel")


class NotebookBar:
    """A bar in the output of a notebook's cell, changed in place."""

    def __init__(self, title: str, *, done: int = 0, total: int = 0) -> None:
        from IPython.display import display

        self.title, self.words, self.done, self.total = title, "", done, total
        self._shown_at = time.monotonic()
        self._handle: Any = display(self, display_id=True)  # type: ignore[no-untyped-call]

    def update(self, done: int, total: int, words: str | None = None) -> None:
        """How much is done, and words to go with it; the last ones stay if there are none."""
        self.done, self.total = done, total
        self.words = self.words if words is None else words
        if done >= total or time.monotonic() - self._shown_at >= _SECONDS:
            self.finish()

    def finish(self) -> None:
        """Show what is not shown yet."""
        self._shown_at = time.monotonic()
        self._handle.update(self)

    def __repr__(self) -> str:
        return f"{self.title} {self.done}/{self.total or '?'} {self.words}".rstrip()

    def _repr_html_(self) -> str:
        most = f'value="{self.done}" max="{self.total}"' if self.total else ""
        return f"<progress {most}></progress> {escape(repr(self))}"
