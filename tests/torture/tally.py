"""What was tried and what went wrong, for the minutes that `make torture` may take."""

import os
import time
from collections import Counter

SEED = int(os.environ.get("TORTURE_SEED", "0"))


class Tally:
    """Tries by name, and what was wrong."""

    def __init__(self, *, share):
        self.tried: Counter[str] = Counter()
        self.bad: list[str] = []
        self._end = time.monotonic() + 60 * share * float(os.environ.get("TORTURE_MINUTES", "30"))

    def rounds(self):
        """Numbers until the time is up, at least one."""
        number = 0
        while number == 0 or time.monotonic() < self._end:
            yield number
            number += 1

    def add(self, name, *, n=1, bad=""):
        self.tried[name] += n
        if bad:
            self.bad.append(f"{name}: {bad}")

    def check(self):
        print("", *(f"{n:7,}  {name}" for name, n in self.tried.items()), f"{len(self.bad):7,}  went wrong", sep="\n")
        assert not self.bad, "\n".join(self.bad[:40])
