"""Every command that writes is killed at random moments and started again: it ends as if it had been left alone."""

import os
import signal
import time
from dataclasses import dataclass

import numpy as np
import pytest

from torture.leftovers import difference, state_of
from torture.scenes import COMMANDS
from torture.tally import minutes, torture_seed

pytest_plugins = ["torture.fixtures"]
pytestmark = pytest.mark.torture
MOST_KILLS = 5  # of one piece of work


@dataclass(frozen=True)
class LeftAlone:
    """A command that was not disturbed: how long it took, how often it changed files, and what it left."""

    seconds: float
    n_events: int
    state: dict


def left_alone(workshop, command):
    place, log = workshop.place(command), workshop.folder / "log"
    log.unlink(missing_ok=True)
    events = workshop.folder / "events"
    start = time.monotonic()
    status = workshop.run(command, command.arguments, place, log=log, events_file=str(events))
    assert status == 0, f"{command.name}: {log.read_text()}"
    return LeftAlone(time.monotonic() - start, int(events.read_text()), state_of(place))


def killed(workshop, command, arguments, place, usual, rng):
    """Start it and kill it, at a random moment or just before a random change to a file; whether it was still running."""
    at_event = rng.random() < 0.5
    event = int(rng.integers(1, usual.n_events + 1)) if at_event else 0
    child = workshop.start(command, arguments, place, log=workshop.folder / "log", kill_at_event=event)
    if not at_event:
        time.sleep(rng.uniform(0, usual.seconds))
        os.kill(child, signal.SIGKILL)
    status = workshop.forge.wait(child)
    assert status in (0, -signal.SIGKILL), f"status {status}: {(workshop.folder / 'log').read_text()}"
    return status != 0


def torment(workshop, command, usual, rng):
    """One piece of work, killed up to five times and finished; how many kills, and what is wrong in the end."""
    place, log = workshop.place(command), workshop.folder / "log"
    log.unlink(missing_ok=True)
    arguments, again = command.arguments, command.again or command.arguments
    n_killed = 0
    for _ in range(int(rng.integers(1, MOST_KILLS + 1))):
        try:
            n_killed += killed(workshop, command, arguments, place, usual, rng)
        except AssertionError as error:
            return n_killed, str(error)
        arguments = again
    status = workshop.run(command, arguments, place, log=log)
    if status != 0:
        return n_killed, f"status {status}: {log.read_text()}"
    return n_killed, difference(state_of(place), usual.state)


def test_killed_commands(workshop, tally):
    end = minutes(0.6)
    rng = np.random.default_rng(torture_seed())
    usual = {command.name: left_alone(workshop, command) for command in COMMANDS}
    done = {command.name: 0 for command in COMMANDS}
    while time.monotonic() < end:
        command = min(COMMANDS, key=lambda command: done[command.name] / command.weight)
        n_killed, bad = torment(workshop, command, usual[command.name], rng)
        done[command.name] += max(n_killed, 1)
        tally.add(command.name, n=n_killed, bad=bad)
    assert not tally.failures, "\n".join(tally.failures)
