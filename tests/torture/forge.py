"""A warm process that has imported everything and forks a child per command: real processes, real kills, a second each.

A line of JSON on standard input is a request, a line on standard output the answer. Kernels are loaded and glyphs are drawn
before the first fork, with one thread, so that forking is safe.
"""

import functools
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from threading import Lock

WRITING = {f"os.{name}" for name in ("rename", "remove", "rmdir", "mkdir", "truncate", "link", "symlink", "utime")}
ONE_THREAD = {"NUMBA_THREADING_LAYER": "workqueue", "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def main():
    import torch

    torch.set_num_threads(1)
    for name in Path(sys.argv[1]).read_text().split():
        importlib.import_module(name)
    from facetric.cli.compilation import compile_kernels
    from facetric.data import glyphs

    compile_kernels()
    glyphs._draw_all = functools.cache(glyphs._draw_all)
    glyphs.load_glyphs(min_images=17)
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "warm_up" in request:
            _warm_up(request["warm_up"])
            print("0", flush=True)
            continue
        if "wait" in request:
            print(json.dumps(_wait(request["wait"])), flush=True)
            continue
        child = os.fork()
        if child == 0:
            _run(request)
        print(json.dumps(child), flush=True)


def _warm_up(commands):
    """In this process: what they load is there for every child. What they print is not an answer."""
    from facetric.cli.main import app

    answers = os.dup(1)
    os.dup2(2, 1)
    for command in commands:
        app(command, standalone_mode=False)
    sys.stdout.flush()
    os.dup2(answers, 1)


def _wait(child):
    """None while it runs."""
    ended, status, used = os.wait4(child, os.WNOHANG)
    return (os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime) if ended else None


def _run(request):
    """In the child: a facetric command, or a function of a module of the tests, with its output in a file."""
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(request["environment"])
    if request["file_size_limit"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_size_limit"],) * 2)
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

    def __init__(self, folder, modules):
        plan = folder / "modules"
        plan.write_text("\n".join(modules))
        environment = {**os.environ, "FACETRIC_CACHE": str(folder / "warm_cache"), **ONE_THREAD}
        environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), environment.get("PYTHONPATH", "")])
        command = [sys.executable, __file__, str(plan)]
        with (folder / "forge.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1, env=environment
            )
        assert self._process.stdout.readline() == "ready\n"
        self.seconds = 0.0  # of processor time in all children
        self._lock = Lock()

    def warm_up(self, commands):
        """Run commands in the warm process itself. They must take no gradient, which would forbid forking."""
        self._ask({"warm_up": commands})

    def start(self, *arguments, log, environment=None, folder=None, **options):
        """Start a facetric command, or `function`, a module:function of the tests; gives its process id."""
        usual = {"function": None, "file_size_limit": None, "kill_at_event": 0, "events_file": None}
        own = {"arguments": list(map(str, arguments)), "log": str(log), "environment": environment or {}}
        return self._ask({**usual, **own, "folder": folder and str(folder), **options})

    def wait(self, child):
        """Its exit status, negative for a signal."""
        while (ended := self._ask({"wait": child})) is None:
            time.sleep(0.01)
        self.seconds += ended[1]
        return ended[0]

    def run(self, *arguments, **options):
        return self.wait(self.start(*arguments, **options))

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()

    def _ask(self, request):
        with self._lock:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
