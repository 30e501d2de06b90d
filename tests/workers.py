"""The workers of the tests, forked from one process: it imports torch and the rest once, where each would take as long.

xdist starts a Python for every worker. Here that Python hands its files over to a fork of the warm process, and ends when that
does. The warm process ends with the tests, which hold the other end of its standard input.
"""

import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import types

MODULES = [
    "facetric.cli.main",
    "facetric.training",
    "facetric.training.study.reproduction",
    "facetric.embedder.loading",
    "facetric.report",
    "facetric.photos.sqlite_store",
    "facetric.photos.duplicates",
    "matplotlib.pyplot",
    "pandas",
    "scipy.cluster.hierarchy",
    "sklearn.utils.estimator_checks",
    "pytorch_metric_learning.losses",
]


def warm(place, n_threads):
    """Start the warm process: what ends it when it is closed, and which Python to start for a worker."""
    environment = {"OMP_NUM_THREADS": str(n_threads), **os.environ}
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        listening.listen()
        command = [sys.executable, __file__, str(listening.fileno())]
        started = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[listening.fileno()], env=environment)
    started.returncode = 0  # nobody waits for it
    return started.stdin, shlex.join([sys.executable, "-ISs", __file__, str(place)])


def serve(number):
    """Import everything, then fork a worker for everyone who asks."""
    import importlib

    from facetric.machine import prepare_process

    prepare_process()
    listening = socket.socket(fileno=number)
    for name in MODULES:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a worker ended
    while listening in select.select([listening, 0], [], [])[0]:
        connection = listening.accept()[0]
        program, files, _, _ = socket.recv_fds(connection, 1 << 16, 4)
        if os.fork() == 0:
            listening.close()
            connection.close()
            work(program.decode(), files)
        for file in files:
            os.close(file)
        connection.close()


def work(program, files):
    """In the fork: what the Python that was started would have done."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w", buffering=1), open(2, "w", buffering=1)  # noqa: SIM115
    sys.argv, sys.modules["__main__"] = ["-c"], types.ModuleType("__main__")
    try:
        exec(program, sys.modules["__main__"].__dict__)
    finally:
        os._exit(0)


def ask(place, program):
    """Be a worker: hand over the files of this process, and wait for the end of the fork, which holds the end of a pipe."""
    ended, held = os.pipe()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(place)
        socket.send_fds(connection, [program.encode()], [0, 1, 2, held])
    os.close(held)
    os.read(ended, 1)


if __name__ == "__main__":
    if sys.argv[2:]:
        ask(sys.argv[1], sys.argv[-1])
    else:
        serve(int(sys.argv[1]))
