"""Commands of facetric, and functions of the tests, in processes of their own: to be killed, signaled, limited, or ranks.

A process costs seconds, to import torch. Tests of what a command says call it in their own process, by `CliRunner`.
"""

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

TESTS = Path(__file__).parent
LONGEST = 600  # seconds that a process may take
CALL = "import importlib, sys; m, f = sys.argv[1].split(':'); getattr(importlib.import_module(m), f)(*sys.argv[2:])"


def start(*arguments, log, errors=None, function=None, environment=None, file_size_limit=None, cwd=None):
    """Start a facetric command, or `function`, a module:function of the tests, with its output appended to files."""
    program = ["-c", CALL, function] if function else ["-m", "facetric"]
    now = {**os.environ, **(environment or {})}
    now["PYTHONPATH"] = os.pathsep.join([str(TESTS), now.get("PYTHONPATH", "")])
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in what a shell has started in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with open(log, "ab") as printed, open(errors or log, "ab") as said:
        arguments = [sys.executable, *program, *map(str, arguments)]
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=printed, stderr=said, env=now, cwd=cwd)
    if file_size_limit is not None:  # long before it writes
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (file_size_limit,) * 2)
    return process


def start_ranks(*arguments, logs, environment=None, **options):
    """As torchrun would: a process per log, that find each other on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    n = str(len(logs))
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": n, "LOCAL_WORLD_SIZE": n}
    common |= {"TORCHELASTIC_RUN_ID": "test", "GROUP_RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "False"}
    ranks = [{**common, **(environment or {}), "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(len(logs))]
    return [start(*arguments, log=log, environment=rank, **options) for log, rank in zip(logs, ranks, strict=True)]


def wait(process, *, seconds=LONGEST):
    """Its exit status, negative for a signal. One that never ends is killed, and fails its test."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        pytest.fail(f"a process has not ended after {seconds} seconds")


def wait_all(children, *, seconds=120):
    """Their exit statuses; that they wait for each other is an error."""
    try:
        return [wait(child, seconds=seconds) for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()


def run(*arguments, **options):
    return wait(start(*arguments, **options))


def command(*arguments, **options):
    """Run a command or a function: its exit status, what it printed, and its standard error."""
    with TemporaryDirectory() as folder:
        printed, errors = Path(folder) / "printed", Path(folder) / "errors"
        status = run(*arguments, log=printed, errors=errors, **options)
        return subprocess.CompletedProcess(arguments, status, printed.read_text(), errors.read_text())


def wait_for(condition, *, seconds=300):  # a busy machine is not a failure
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def contains(path, text):
    return Path(path).is_file() and text in Path(path).read_text()
