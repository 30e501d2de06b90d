"""Imports once, then forks a process per run: tests that kill runs need not wait for torch again and again.

A line of JSON on standard input is a request, a line on standard output the answer. The imports use no threads, so that forking
is safe.
"""

import json
import os
import resource
import runpy
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path

import numpy as np


def main():
    from facetric.solver import ClusteringProblem, solve

    points = np.random.default_rng(0).normal(size=(12, 2))
    distances = np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))
    solve(ClusteringProblem(distances, np.arange(12) % 3), inference="stochastic")  # compiled before the first fork
    import facetric.evaluation.embedding
    import facetric.training.loop  # noqa: F401

    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            print(json.dumps(os.waitstatus_to_exitcode(status)), flush=True)
            continue
        child = os.fork()
        if child == 0:
            _run(request)
        print(json.dumps(child), flush=True)


def _run(request):
    """In the child: a command line of facetric, or a script, with its output in a file."""
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if request["file_size_limit"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_size_limit"],) * 2)
    os.environ.update(request["environment"])
    status = 99
    try:
        if request["script"]:
            sys.argv = [request["script"], *request["arguments"]]
            runpy.run_path(request["script"], run_name="__main__")
            status = 0
        else:
            from facetric.cli.main import app

            app(request["arguments"])
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class ForkingServer:
    """The tests' end of it."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self._process.stdout.readline() == "ready\n"

    def start(self, *arguments, log, script=None, environment=None, file_size_limit=0):
        """Start a facetric command, or a script; gives its process id."""
        request = {"arguments": [str(a) for a in arguments], "log": str(log), "script": script and str(script)}
        return self._ask({**request, "environment": environment or {}, "file_size_limit": file_size_limit})

    def start_ranks(self, *arguments, logs, script=None):
        """As torchrun would: a process per log, that find each other on this machine."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        n = str(len(logs))
        common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": n, "LOCAL_WORLD_SIZE": n}
        common |= {"TORCHELASTIC_RUN_ID": "test", "GROUP_RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "False"}
        return [
            self.start(*arguments, log=log, script=script, environment={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank, log in enumerate(logs)
        ]

    def wait(self, process_id):
        """Its exit status, negative for a signal."""
        return self._ask({"wait": process_id})

    def run(self, *arguments, log, file_size_limit=0):
        return self.wait(self.start(*arguments, log=log, file_size_limit=file_size_limit))

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()

    def _ask(self, request):
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


def wait_for(condition, *, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def contains(path, text):
    return Path(path).is_file() and text in Path(path).read_text()


if __name__ == "__main__":
    main()
