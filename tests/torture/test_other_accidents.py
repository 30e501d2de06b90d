"""A full disk, two processes at once, and the death of one of two: a line that says what happened, and nothing is lost."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from functools import partial

import numpy as np
import pytest

from forge import contains
from torture.leftovers import difference, state_of
from torture.scenes import COMMANDS
from torture.tally import minutes, torture_seed
from torture.turns import by_turns

pytest_plugins = ["torture.fixtures"]
pytestmark = pytest.mark.torture


def finish(workshop, command, place):
    """Run a command to its end without any limit; what is wrong with what it leaves."""
    log = workshop.log(command)
    status = workshop.run(command, command.again or command.arguments, place, log=log)
    if status != 0:
        return f"status {status} afterwards: {log.read_text()}"
    return difference(state_of(place), workshop.left_alone(command).state)


def dice(command, turn):
    return np.random.default_rng([torture_seed(), COMMANDS.index(command), turn])


def complaint(text, place=None):
    """What is wrong with the last words of a command that failed: they are one line, and name a file below the place."""
    lines = text.strip().splitlines()
    if "Traceback" in text or not lines or not lines[-1].startswith("facetric "):
        return f"not one line: {text[-600:]}"
    return f"no file is named: {lines[-1]}" if place is not None and str(place) not in lines[-1] else ""


def limited(workshop, command, place, **options):
    """Start it under a limit that it may hit; what is wrong with the way it fails."""
    log = workshop.log(command)
    log.unlink(missing_ok=True)
    status = workshop.run(command, command.arguments, place, log=log, **options)
    if status in (1, 2):
        return complaint(log.read_text(), place)
    return "" if status == 0 else f"status {status}: {log.read_text()}"


def test_a_file_that_cannot_grow(workshop, tally):
    """RLIMIT_FSIZE: as on a disk that is full, or under a quota."""

    def work(command, turn):
        workshop.left_alone(command)
        place, limit = workshop.place(command), int(10 ** dice(command, turn).uniform(3.9, 5.6))
        bad = limited(workshop, command, place, file_size_limit=limit) or finish(workshop, command, place)
        tally.add(command.name, bad=bad and f"limit {limit}: {bad}")
        return 1

    by_turns(COMMANDS, work, end=minutes(0.05))
    assert not tally.failures, "\n".join(tally.failures)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")
def test_a_disk_that_is_full(workshop, tally):
    """A small file system in memory, which gets more room afterwards."""

    def work(command, turn):
        workshop.left_alone(command)
        place, template = workshop.place(command), workshop.templates[command.name]
        shutil.rmtree(place)
        place.mkdir()
        used = sum(path.stat().st_size + 4096 for path in template.rglob("*"))
        free = int(10 ** dice(command, turn).uniform(4, 6.3))
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={used + free}", "tmpfs", place], check=False).returncode:
            pytest.skip("this machine mounts no file systems")
        try:
            shutil.copytree(template, place, symlinks=True, dirs_exist_ok=True)
            bad = limited(workshop, command, place)
            subprocess.run(["mount", "-o", "remount,size=256m", place], check=True)
            bad = bad or finish(workshop, command, place)
        finally:
            subprocess.run(["umount", "-l", place], check=True)
        tally.add(command.name, bad=bad and f"{free} bytes free: {bad}")
        return 1

    by_turns(COMMANDS, work, end=minutes(0.03))
    assert not tally.failures, "\n".join(tally.failures)


def test_two_at_once(workshop, tally):
    """The same command twice, a moment apart: one line from the one that must not, and the state of one."""

    def work(command, turn):
        workshop.left_alone(command)
        place, rng = workshop.place(command), dice(command, turn)
        logs = [workshop.log(command).with_suffix(f".{which}") for which in ("first", "second")]
        children = []
        for log in logs:
            log.unlink(missing_ok=True)
            children.append(workshop.start(command, command.arguments, place, log=log))
            time.sleep(rng.exponential(0.15))
        bad = ""
        for child, log in zip(children, logs, strict=True):
            status = workshop.forge.wait(child)
            bad = bad or (
                complaint(log.read_text()) if status in (1, 2) else f"status {status}: {log.read_text()}" if status else ""
            )
        tally.add(command.name, bad=bad or finish(workshop, command, place))
        return 1

    by_turns(COMMANDS, work, end=minutes(0.05))
    assert not tally.failures, "\n".join(tally.failures)


def two_ranks(workshop, place, arguments, logs):
    cache = {"FACETRIC_CACHE": str(place / "cache")}
    return workshop.forge.start_ranks(*arguments(workshop, place), logs=logs, environment=cache)


def other_still_runs(children, *, joined):
    """Two that have joined notice by themselves. One that waits for the other to join is ended, as torchrun does it."""
    if joined:
        pytest.fail("the other process waits for ever")
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def test_the_death_of_one_of_two_processes(workshop, tally):
    """SIGKILL for one rank: the other ends too, and both resume to the end of an undisturbed run of two."""
    end, rng = minutes(0.05), np.random.default_rng(torture_seed())
    train = COMMANDS[0]
    logs = [workshop.folder / "0.log", workshop.folder / "1.log"]
    place = workshop.place(train)
    start = time.monotonic()
    children = two_ranks(workshop, place, train.arguments, logs)
    assert [workshop.forge.wait(child) for child in children] == [0, 0], [log.read_text() for log in logs]
    duration, usual = time.monotonic() - start, state_of(place)
    while True:
        place = workshop.place(train)
        for log in logs:
            log.unlink(missing_ok=True)
        children = two_ranks(workshop, place, train.arguments, logs)
        time.sleep(rng.uniform(0, duration))
        on_alarm = partial(other_still_runs, children, joined=contains(logs[0], "classes to train"))
        os.kill(children[rng.integers(2)], signal.SIGKILL)
        signal.signal(signal.SIGALRM, lambda *_, ends=on_alarm: ends())
        signal.alarm(300)
        statuses = [workshop.forge.wait(child) for child in children]
        signal.alarm(0)
        bad = ""
        if statuses != [0, 0]:
            children = two_ranks(workshop, place, train.again, logs)
            again = [workshop.forge.wait(child) for child in children]
            bad = "" if again == [0, 0] else f"{again}: {[log.read_text()[-500:] for log in logs]}"
            bad = bad or difference(state_of(place), usual)
        tally.add("one of two", bad=bad)
        if time.monotonic() > end:
            break
    assert not tally.failures, "\n".join(tally.failures)
