"""What was tried, what went well, and what did not: the table that `make torture` prints."""

import os
import time
from pathlib import Path


class Tally:
    """Counts by row. `bad` keeps what happened, for the message."""

    def __init__(self):
        self.rows: dict[str, list[int]] = {}
        self.failures: list[str] = []

    def add(self, row, *, n=1, bad=""):
        counts = self.rows.setdefault(row, [0, 0])
        counts[0] += n
        if bad:
            counts[1] += 1
            self.failures.append(f"{row}: {bad}")
        if os.environ.get("TORTURE_LOG"):  # what is known so far, for who waits
            Path(os.environ["TORTURE_LOG"]).write_text("\n".join([self.table(), *self.failures]) + "\n")

    def table(self):
        width = max(map(len, self.rows), default=0)
        lines = [f"{'':{width}}  {'tried':>7}  {'fine':>7}  {'bad':>5}"]
        lines += [f"{row:{width}}  {tried:7,}  {tried - bad:7,}  {bad:5,}" for row, (tried, bad) in self.rows.items()]
        return "\n".join(lines)


def minutes(fraction):
    """The end of a loop, by the clock: its fraction of TORTURE_MINUTES."""
    return time.monotonic() + 60 * fraction * float(os.environ.get("TORTURE_MINUTES", "30"))
