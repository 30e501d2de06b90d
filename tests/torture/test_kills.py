"""Every command that writes is killed at random moments and started again: it ends as if it had been left alone."""

import os
import signal
import time

import numpy as np
import pytest

from torture.leftovers import difference, state_of
from torture.scenes import COMMANDS
from torture.tally import asked_for, minutes, torture_seed
from torture.turns import by_turns

pytest_plugins = ["torture.fixtures"]
pytestmark = pytest.mark.torture
MOST_KILLS = 5  # of one piece of work


def killed(workshop, command, arguments, place, usual, rng):
    """Start it and kill it, at a random moment or just before a random change to a file; whether it was still running."""
    at_event = rng.random() < 0.5
    event = int(rng.integers(1, usual.n_events + 1)) if at_event else 0
    child = workshop.start(command, arguments, place, log=workshop.log(command), kill_at_event=event)
    if not at_event:
        time.sleep(rng.uniform(0, usual.seconds))
        os.kill(child, signal.SIGKILL)
    status = workshop.forge.wait(child)
    assert status in (0, -signal.SIGKILL), f"status {status}: {workshop.log(command).read_text()}"
    return status != 0


def torment(workshop, command, rng):
    """One piece of work, killed up to five times and finished; how many kills, and what is wrong in the end."""
    usual, place, log = workshop.left_alone(command), workshop.place(command), workshop.log(command)
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
    def work(command, turn):
        n_killed, bad = torment(workshop, command, np.random.default_rng([torture_seed(), COMMANDS.index(command), turn]))
        tally.add(command.name, n=n_killed, bad=bad)
        return max(n_killed, 1) / command.weight

    by_turns([command for command in COMMANDS if asked_for(command.name)], work, end=minutes(0.6))
    assert not tally.failures, "\n".join(tally.failures)
