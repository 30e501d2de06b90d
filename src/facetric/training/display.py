"""What the user sees: a progress bar on a terminal or in a notebook, plain lines elsewhere, a table at the end."""

from __future__ import annotations

import logging
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from facetric.progress import NotebookBar, in_notebook
from facetric.text import printable

_log = logging.getLogger("facetric")
HEADINGS = {**{f"recall_at_{k}": f"R@{k}" for k in (1, 2, 4, 8)}, "map_at_r": "MAP@R", "nmi": "NMI"}


class Display:
    """Shows the rows of metrics.jsonl as they come: on a console, or without one through logging under the name facetric.

    Every process but the first is silent.
    """

    def __init__(self, console: Console | None, *, n_steps: int, silent: bool = False) -> None:
        self.console = None if silent else console
        self.silent = silent
        self.n_steps = n_steps
        self._progress: Progress | None = None
        self._bar: NotebookBar | None = None
        self._task = TaskID(0)

    def say(self, line: str) -> None:
        """One line, above the bar if there is one."""
        if self.console is not None:
            self.console.print(Text(printable(line)), soft_wrap=True)
        elif not self.silent:
            _log.info("%s", line)

    def warn(self, line: str) -> None:
        """One line that is shown whatever happens: on the console, or as a warning in the log where that is quiet."""
        if self.console is not None and not self.console.quiet:
            self.say(line)
        elif not self.silent:
            _log.warning("%s", line)

    def start(self, step: int) -> None:
        """Training starts, or resumes, after this step."""
        if self.console is not None and self.console.is_terminal:
            columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
            self._progress = Progress(*columns, TimeRemainingColumn(), console=self.console, transient=True)
            self._progress.start()
            self._task = self._progress.add_task("", total=self.n_steps, completed=step)
        elif self.console is None and not self.silent and in_notebook():
            self._bar = NotebookBar("training", done=step, total=self.n_steps)

    def stepped(self, step: int) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=step)
        if self._bar is not None:
            self._bar.update(step, self.n_steps)

    def logged(self, row: dict[str, Any]) -> None:
        """A row of metrics.jsonl."""
        if self._bar is not None:
            self._bar.update(row["step"], self.n_steps, _words(row))
        if self._progress is not None:
            self._progress.update(self._task, description=_words(row))
        else:
            left = (self.n_steps - row["step"]) * row["timing"]["step_seconds"]
            self.say(f"step {row['step']:>6}/{self.n_steps}  {_words(row)}  {_duration(left)} left")

    def validated(self, step: int, scores: dict[str, float], *, best: bool) -> None:
        words = "  ".join(f"{name} {value:.4f}" for name, value in scores.items())
        self.say(f"step {step:>6}: validation {words}{'  (best so far)' if best else ''}")

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        if self._bar is not None:
            self._bar.finish()
            self._bar = None

    def table(self, title: str, rows: dict[str, dict[str, float]]) -> None:
        """The validation scores: a row per moment, a column per score."""
        if self.console is None:
            for moment, scores in rows.items():
                self.say(f"{title}: {moment}: " + "  ".join(f"{HEADINGS.get(k, k)} {value:.4f}" for k, value in scores.items()))
            return
        if not rows:
            return
        table = Table(title=title, title_justify="left")
        table.add_column("", no_wrap=True)
        for name in next(iter(rows.values())):
            table.add_column(HEADINGS.get(name, name), justify="right")
        for moment, scores in rows.items():
            table.add_row(moment, *(f"{value:.4f}" for value in scores.values()))
        self.console.print(table)


def _words(row: dict[str, Any]) -> str:
    words = [f"loss {row['loss']:.4f}"]
    if row["nmi"] is not None:
        words.append(f"NMI {row['nmi']:.3f}")
    if row["margin_weight"] is not None:
        words.append(f"γ {row['margin_weight']:.3g}")
    words.append(f"{row['timing']['images_per_second']:.0f} images/s")
    return "  ".join(words)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
