"""What was tried, what went well, and what did not: the table that `make torture` prints.

TORTURE_OUTPUT names a file that every count is appended to at once: a stop loses nothing, and the table is that of all
invocations so far. `python tests/torture/tally.py FILE` prints it.
"""

import json
import os
import sys
import time
from pathlib import Path
from threading import Lock


class Tally:
    """Counts of one loop, by row. `bad` keeps what happened, for the message."""

    def __init__(self, loop):
        self.loop = loop
        self.rows: dict[str, list[int]] = {}
        self.failures: list[str] = []
        self._lock = Lock()

    def add(self, row, *, n=1, bad=""):
        with self._lock:
            self._count(row, n, bad)
        if output := os.environ.get("TORTURE_OUTPUT"):
            entry = {"loop": self.loop, "row": row, "n": n, "bad": bad, "seed": torture_seed()}
            with Path(output).open("a") as file:
                file.write(json.dumps(entry) + "\n")  # one write: several processes may append

    def _count(self, row, n, bad):
        counts = self.rows.setdefault(row, [0, 0])
        counts[0] += n
        if bad:
            counts[1] += 1
            self.failures.append(f"{row}: {bad}")

    def table(self):
        rows = {**self.rows, "all": [sum(counts) for counts in zip(*self.rows.values(), strict=True)] or [0, 0]}
        width = max(map(len, rows))
        lines = [f"{self.loop:{width}}  {'tried':>7}  {'fine':>7}  {'bad':>5}"]
        lines += [f"{row:{width}}  {tried:7,}  {max(tried - bad, 0):7,}  {bad:5,}" for row, (tried, bad) in rows.items()]
        return "\n".join([*lines, *(f"  BAD {failure}" for failure in self.failures[:50])])


def recorded(path) -> dict[str, Tally]:
    """The counts of a file, by loop."""
    found: dict[str, Tally] = {}
    for line in Path(path).read_text().splitlines():
        entry = json.loads(line)
        found.setdefault(entry["loop"], Tally(entry["loop"]))._count(entry["row"], entry["n"], entry["bad"])
    return found


def torture_seed():
    return int(os.environ.get("TORTURE_SEED", "0"))


def asked_for(name):
    """Whether TORTURE_ONLY, words divided by commas, has one that is part of this name; without it everything is."""
    words = os.environ.get("TORTURE_ONLY", "").split(",")
    return any(word.strip() in name for word in words)


def minutes(fraction):
    """The end of a loop, by the clock: its fraction of TORTURE_MINUTES."""
    return time.monotonic() + 60 * fraction * float(os.environ.get("TORTURE_MINUTES", "30"))


if __name__ == "__main__":
    print("\n\n".join(tally.table() for tally in recorded(sys.argv[1]).values()))
