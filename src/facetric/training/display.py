"""What the user sees: a progress bar on a terminal or in a notebook, plain lines elsewhere, a table at the end."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.text import Text
from tabulate import tabulate
from tqdm.auto import tqdm

from facetric.progress import in_notebook
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

    def say(self, line: str) -> None:
        """One line, above the bar if there is one."""
        if self.console is not None:
            with tqdm.external_write_mode(file=self.console.file):
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
        stays = self.console is None and not self.silent and in_notebook()
        file, is_shown = (None, stays) if self.console is None else (self.console.file, self.console.is_terminal)
        self._bar: Any = tqdm(desc="training", initial=step, total=self.n_steps, leave=stays, file=file, disable=not is_shown)

    def stepped(self, step: int) -> None:
        self._bar.update(step - self._bar.n)

    def logged(self, row: dict[str, Any]) -> None:
        """A row of metrics.jsonl."""
        nmi, weight = row["batch_nmi"], row["margin_weight"]
        terms = "" if None in (nmi, weight) else f"  batch NMI {nmi:.3f}  γ {weight:.3g}"
        words = f"loss {row['loss']:.4f}{terms}  {row['timing']['images_per_second']:.0f} images/s"
        self._bar.set_postfix_str(words)
        if self._bar.disable or self.console is None:
            left = timedelta(seconds=round((self.n_steps - row["step"]) * row["timing"]["step_seconds"]))
            self.say(f"step {row['step']:>6}/{self.n_steps}  {words}  {left} left")

    def validated(self, step: int, scores: dict[str, float], *, best: bool) -> None:
        words = "  ".join(f"{name} {value:.4f}" for name, value in scores.items())
        self.say(f"step {step:>6}: validation {words}{'  (best so far)' if best else ''}")

    def stop(self) -> None:
        self._bar.close()

    def table(self, title: str, rows: dict[str, dict[str, float]]) -> None:
        """The validation scores: a row per moment, a column per score."""
        if rows:
            headings = ["", *(HEADINGS.get(name, name) for name in next(iter(rows.values())))]
            body = [[moment, *scores.values()] for moment, scores in rows.items()]
            for line in (title, *tabulate(body, headings, floatfmt=".4f").splitlines()):
                self.say(line)
