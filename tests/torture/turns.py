"""Commands by turns, several at a time (TORTURE_JOBS), none of them twice at once."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from facetric.machine import available_cores


def by_turns(commands, work, *, end):
    """Call `work(command, turn)` until the time is up, and at least once for every command.

    It gives what that turn counts; the command with the least so far is next.
    """
    turns, counts, busy, lock = dict.fromkeys(commands, 0), dict.fromkeys(commands, 0.0), set(), Lock()

    def worker():
        while True:
            with lock:
                late = time.monotonic() > end
                waiting = [command for command in commands if command not in busy and not (late and turns[command])]
                if not waiting:
                    return
                command = min(waiting, key=counts.__getitem__)
                busy.add(command)
                turn = turns[command]
                turns[command] += 1
            try:
                count = work(command, turn)
            finally:
                with lock:
                    busy.remove(command)
            with lock:
                counts[command] += count

    n_jobs = int(os.environ.get("TORTURE_JOBS", available_cores()))
    with ThreadPoolExecutor(n_jobs) as pool:
        for job in [pool.submit(worker) for _ in range(n_jobs)]:
            job.result()
