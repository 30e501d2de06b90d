"""Progress of long work: one callback, and bars that show it on a terminal or in a notebook (nothing in a log file)."""

from __future__ import annotations

import os
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
def steps_shown(*, lines: bool = False) -> Iterator[OnStep]:
    """A bar per step on stderr of a terminal or in a notebook; elsewhere nothing, or with `lines` the name of each step.

    Only the first process of torchrun shows anything.
    """
    from tqdm.auto import tqdm

    is_first = os.environ.get("RANK", "0") == "0"
    has_bars = is_first and (sys.stderr.isatty() or in_notebook())
    bars: dict[str, Any] = {}

    def show(step: str, done: int, total: int) -> None:
        if step not in bars:
            bars[step] = tqdm(desc=step, total=total, leave=False, disable=not has_bars)
            if lines and is_first and not has_bars:
                print(step, file=sys.stderr, flush=True)
        bars[step].total = total
        bars[step].update(done - bars[step].n)

    try:
        yield show
    finally:
        for bar in bars.values():
            bar.close()


@contextmanager
def progress_bar(title: str, *, total: int | None = None, completed: int = 0) -> Iterator[Progress]:
    """The bar of one step; call what it gives with (done, total)."""
    with steps_shown() as show:
        yield lambda done, n: show(title, done, n)


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
