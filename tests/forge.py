"""A warm process that has imported everything and forks a child per command: real processes, real kills, no wait for torch.

All workers of the tests ask one such process, through a socket: a line of JSON is a request, the line that comes back its answer.
Kernels are loaded and glyphs are drawn before the first fork, with one thread, so that forking is safe. It ends with the last
who may ask.
"""

import functools
import gc
import importlib
import json
import multiprocessing.context
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from threading import Lock

from filelock import FileLock

WRITING = {f"os.{name}" for name in ("rename", "remove", "rmdir", "mkdir", "truncate", "link", "symlink", "utime")}
ONE_THREAD = {"NUMBA_THREADING_LAYER": "workqueue", "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
NARROW = (8, 16, 32, 64)  # channels of the glyphnet that tests train
LONGEST = 600  # seconds that a command may take
TRAINING = ["pytest", "facetric.cli.main", "facetric.training.loop", "facetric.embedder.embedding"]
PHOTOS = ["facetric.embedder", "facetric.photos.folder_vectors", "facetric.photos.sqlite_store", "facetric.service.server"]


def main(plan, place):
    import torch

    torch.set_num_threads(1)
    for name in Path(plan).read_text().split():
        importlib.import_module(name)
    from facetric.cli.compilation import compile_kernels
    from facetric.embedder import glyphnet
    from facetric.images import glyphs

    compile_kernels()
    glyphnet.WIDTHS = NARROW
    glyphs._draw_all = functools.cache(glyphs._draw_all)
    glyphs.load_glyphs(min_images=17)
    gc.freeze()  # the collector of a child would write to, and so copy, all that it shares with this process
    _serve(place)


def _serve(place):
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"{place}.part")
    listening.listen()
    os.rename(f"{place}.part", place)  # nobody finds it before it answers
    asking = [listening, listening.accept()[0]]
    while len(asking) > 1:
        for one in select.select(asking, [], [])[0]:
            if one is listening:
                asking.append(listening.accept()[0])
            elif line := _line(one):
                one.sendall(json.dumps(_answer(json.loads(line), asking)).encode() + b"\n")
            else:
                asking.remove(one)
                one.close()
        if len(asking) == 1:
            os.unlink(place)
            asking += [listening.accept()[0]] if select.select([listening], [], [], 0)[0] else []  # found it just before


def _line(connection):
    """What was sent up to a line's end; nothing if the other side has closed."""
    parts = []
    while not parts or not parts[-1].endswith(b"\n"):
        if not (part := connection.recv(1 << 16)):
            return b""
        parts.append(part)
    return b"".join(parts)


def _answer(request, connections):
    if "warm_up" in request:
        from facetric.cli.main import app

        for command in request["warm_up"]:  # in this process: what they load is there for every child
            app(command, standalone_mode=False)
        return 0
    if "wait" in request:
        return _wait(request["wait"])
    child = os.fork()
    if child == 0:
        for connection in connections:  # requests are not for the child
            connection.close()
        _run(request)
    return child


def _wait(child):
    """Its exit status and its processor time; None while it runs."""
    ended, status, used = os.wait4(child, os.WNOHANG)
    return (os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime) if ended else None


def _run(request):
    """In the child: a facetric command, or a function of a module of the tests, with its output in files."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell has started in the background
    for number, path in ((1, request["log"]), (2, request["errors"] or request["log"])):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    if request["file_size_limit"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_size_limit"],) * 2)
    if request["fork_workers"]:  # where spawned ones would import everything once more
        multiprocessing.context._concrete_contexts["spawn"] = multiprocessing.get_context("fork")
    events = _Events(request["folder"], request["kill_at_event"])
    status = 99
    try:
        if request["function"]:
            module, name = request["function"].split(":")
            getattr(importlib.import_module(module), name)(*request["arguments"])
            status = 0
        else:
            from facetric.cli.main import app

            app(request["arguments"], prog_name="facetric")
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        events.save(request["events_file"])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class _Events:
    """Counts what changes files below a folder, and kills this process just before the chosen one."""

    def __init__(self, folder, kill_at):
        self.n, self.kill_at, self.folder = 0, kill_at, os.fsencode(folder) if folder else None
        if folder:
            sys.addaudithook(self._heard)
            fsync = os.fsync

            def counted(handle):
                self._event()
                return fsync(handle)

            os.fsync = counted

    def _heard(self, event, arguments):
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
        elif event in WRITING:
            path = arguments[0]
        else:
            return
        if isinstance(path, str | bytes | os.PathLike) and self.folder in os.fsencode(path):
            self._event()

    def _event(self):
        self.n += 1
        if self.n == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def save(self, path):
        self.kill_at = 0
        if path:
            Path(path).write_text(str(self.n))


class Forge:
    """The tests' end of it; several threads may ask."""

    def __init__(self, folder, modules, *, shared=None, **environment):
        self._folder, self._n_commands = folder, 0
        place = (shared or folder) / "forge"
        with FileLock(f"{place}.lock"):
            self._connection = _connected(place) or _started(place, modules, environment)
        self.seconds = 0.0  # of processor time in all children
        self._lock = Lock()

    def warm_up(self, commands):
        """Run commands in the warm process itself. They must take no gradient, which would forbid forking."""
        self._ask({"warm_up": commands})

    def start(self, *arguments, log, environment=None, folder=None, **options):
        """Start a facetric command, or `function`, a module:function of the tests; gives its process id."""
        usual = {"function": None, "errors": None, "file_size_limit": None, "kill_at_event": 0, "events_file": None}
        usual["fork_workers"] = False
        now = {name: value for name, value in os.environ.items() if name not in ONE_THREAD}  # as the test has changed it
        own = {"arguments": list(map(str, arguments)), "log": str(log), "environment": {**now, **(environment or {})}}
        return self._ask({**usual, **own, "cwd": os.getcwd(), "folder": folder and str(folder), **options})

    def start_ranks(self, *arguments, logs, environment=None, **options):
        """As torchrun would: a process per log, that find each other on this machine."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        n = str(len(logs))
        common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": n, "LOCAL_WORLD_SIZE": n}
        common |= {"TORCHELASTIC_RUN_ID": "test", "GROUP_RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "False"}
        ranks = [{**common, **(environment or {}), "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(len(logs))]
        return [self.start(*arguments, log=log, environment=rank, **options) for log, rank in zip(logs, ranks, strict=True)]

    def wait(self, child):
        """Its exit status, negative for a signal. One that never ends is killed: that fails its test, and not all others."""
        end = time.monotonic() + LONGEST
        while (ended := self._ask({"wait": child})) is None:
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.01)
        self.seconds += ended[1]
        return ended[0]

    def run(self, *arguments, **options):
        return self.wait(self.start(*arguments, **options))

    def command(self, *arguments, **options):
        """Run a facetric command: its exit status, what it printed, and its standard error."""
        self._n_commands += 1
        printed, errors = (self._folder / f"{self._n_commands} {name}" for name in ("printed", "errors"))
        status = self.run(*arguments, log=printed, errors=str(errors), **options)
        return subprocess.CompletedProcess(arguments, status, printed.read_text(), errors.read_text())

    def close(self):
        self._connection.close()

    def _ask(self, request):
        with self._lock:
            self._connection.sendall(json.dumps(request).encode() + b"\n")
            return json.loads(_line(self._connection))


def _connected(place):
    """To the process that listens there; None if there is none."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(place))
    except OSError:
        connection.close()
        return None
    return connection


def _started(place, modules, environment):
    """Start the process and wait until it listens. It is nobody's to wait for: it ends when all connections are closed."""
    plan, log = Path(f"{place}.modules"), Path(f"{place}.log")
    plan.write_text("\n".join(modules))
    environment = {**os.environ, **environment, **ONE_THREAD}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), environment.get("PYTHONPATH", "")])
    nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    output = (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    errors = (os.POSIX_SPAWN_DUP2, 1, 2)
    command = [sys.executable, __file__, str(plan), str(place)]
    child = os.posix_spawn(sys.executable, command, environment, file_actions=[nothing, output, errors])
    while (connection := _connected(place)) is None:
        assert os.waitpid(child, os.WNOHANG) == (0, 0), log.read_text()
        time.sleep(0.05)
    return connection


def wait_for(condition, *, seconds=300):  # a busy machine is not a failure
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def contains(path, text):
    return Path(path).is_file() and text in Path(path).read_text()


if __name__ == "__main__":
    main(*sys.argv[1:])
