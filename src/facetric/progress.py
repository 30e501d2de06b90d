"""Progress of long work: one callback, and bars that show it on a terminal or in a notebook (nothing in a log file)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Progress = Callable[[str, int, int], None]  # called with the name of the step, how much of it is done, and how much there is


@contextmanager
def steps_shown(*, lines: bool = False, prefix: str = "") -> Iterator[Progress]:
    """A bar per step on stderr of a terminal or in a notebook; elsewhere nothing, or with `lines` the name of each step.

    `prefix` stands before the names, for steps that are parts of another one. Only the first process of torchrun shows anything.
    """
    from tqdm.auto import tqdm

    is_first = os.environ.get("RANK", "0") == "0"
    has_bars = is_first and (sys.stderr.isatty() or in_notebook())
    bars: dict[str, Any] = {}

    def show(step: str, done: int, total: int) -> None:
        if step not in bars:
            name = f"{prefix}{step.lower() if prefix else step}"
            bars[step] = tqdm(desc=name, initial=done, total=total, leave=False, disable=not has_bars)
            if lines and is_first and not has_bars:
                print(name, file=sys.stderr, flush=True)
        bars[step].total = total
        bars[step].update(done - bars[step].n)

    try:
        yield show
    finally:
        for bar in bars.values():
            bar.close()


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook: IPython is loaded, and its shell belongs to a kernel."""
    loaded: Any = sys.modules.get("IPython")
    return loaded is not None and hasattr(loaded.get_ipython(), "kernel")
