"""Kills, files that cannot grow, two at once: what was killed ends as what was left alone, what fails says so in one line."""

import signal
import time

import numpy as np
import pytest

import processes
from torture.leftovers import difference, state_of
from torture.scenes import COMMANDS, Workshop
from torture.tally import SEED, Tally

MOST_KILLS = 3  # of one piece of work


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("torture"))


def finish(workshop, command, place, log):
    """Run a command to its end, undisturbed; what is wrong with what it leaves."""
    status = processes.wait(workshop.start(command, place, log, again=True))
    if status != 0:
        return f"status {status} afterwards: {log.read_text()[-600:]}"
    return difference(state_of(place), workshop.left_alone(command).state)


def complaint(log, *, place=None):
    """What is wrong with the last words of a command that failed: they are one line, and name a file below the place."""
    said = log.read_text()
    lines = said.strip().splitlines()
    if "Traceback" in said or not lines or not lines[-1].startswith("facetric "):
        return f"not one line: {said[-600:]}"
    return f"no file is named: {lines[-1]}" if place is not None and str(place) not in lines[-1] else ""


def test_killed_commands(workshop, tmp_path):
    tally = Tally(share=0.5)
    for number in tally.rounds():
        for command in COMMANDS:
            rng = np.random.default_rng([SEED, COMMANDS.index(command), number])
            usual, place, log, n_killed = workshop.left_alone(command), workshop.place(command), tmp_path / "log", 0
            for attempt in range(int(rng.integers(1, MOST_KILLS + 1))):
                at_change = int(rng.integers(1, usual.n_changes + 1)) if rng.random() < 0.5 else 0
                child = workshop.start(command, place, log, again=attempt > 0, kill_at=at_change)
                if not at_change:
                    time.sleep(rng.uniform(0, usual.seconds))
                    child.kill()
                status = processes.wait(child)
                if status not in (0, -signal.SIGKILL):
                    tally.add(command.name, n=0, bad=f"status {status}: {log.read_text()[-600:]}")
                n_killed += status != 0
            tally.add(command.name, n=n_killed, bad=finish(workshop, command, place, log))
            log.unlink()
    tally.check()


def test_a_file_that_cannot_grow(workshop, tmp_path):
    """RLIMIT_FSIZE: as on a disk that is full, or under a quota."""
    tally = Tally(share=0.1)
    for number in tally.rounds():
        for command in COMMANDS:
            limit = int(10 ** np.random.default_rng([SEED, COMMANDS.index(command), number]).uniform(3.9, 5.6))
            place, log = workshop.place(command), tmp_path / f"{command.name} {number}.log"
            status = processes.wait(workshop.start(command, place, log, file_size_limit=limit))
            bad = complaint(log, place=place) if status in (1, 2) else f"status {status}" if status else ""
            bad = bad or finish(workshop, command, place, log)
            tally.add(command.name, bad=bad and f"limit {limit}: {bad}")
    tally.check()


def test_two_at_once(workshop, tmp_path):
    """The same command twice, a moment apart: one line from the one that must not, and the state of one."""
    tally = Tally(share=0.1)
    for number in tally.rounds():
        for command in COMMANDS:
            place, children = workshop.place(command), []
            logs = [tmp_path / f"{command.name} {number} {which}.log" for which in ("first", "second")]
            for log in logs:
                children.append(workshop.start(command, place, log))
                time.sleep(np.random.default_rng([SEED, number]).exponential(0.3))
            bad = ""
            for status, log in zip(processes.wait_all(children, seconds=300), logs, strict=True):
                bad = bad or (complaint(log) if status in (1, 2) else f"{status}: {log.read_text()[-600:]}" if status else "")
            tally.add(command.name, bad=bad or finish(workshop, command, place, logs[0]))
    tally.check()


def test_the_death_of_one_of_two_processes(workshop, tmp_path):
    """SIGKILL for one rank: the other ends too, and both resume to the end of an undisturbed run of two."""
    tally, rng, train = Tally(share=0.1), np.random.default_rng(SEED), COMMANDS[0]
    logs = [tmp_path / "0.log", tmp_path / "1.log"]

    def started(place, arguments):
        return processes.start_ranks(*arguments(workshop, place), logs=logs, environment={"FACETRIC_CACHE": str(place / "cache")})

    place, begin = workshop.place(train), time.monotonic()
    assert processes.wait_all(started(place, train.arguments)) == [0, 0], [log.read_text() for log in logs]
    duration, usual = time.monotonic() - begin, state_of(place)
    for _ in tally.rounds():
        place = workshop.place(train)
        children = started(place, train.arguments)
        processes.wait_for(lambda place=place: (place / "tiny" / "config.toml").is_file())  # before, torchrun ends the other
        time.sleep(rng.uniform(0, duration / 2))
        children[rng.integers(2)].kill()
        bad = ""
        if processes.wait_all(children, seconds=300) != [0, 0]:
            again = processes.wait_all(started(place, train.again))
            bad = (
                difference(state_of(place), usual) if again == [0, 0] else f"{again}: {[log.read_text()[-500:] for log in logs]}"
            )
        tally.add("one of two", bad=bad)
    tally.check()
