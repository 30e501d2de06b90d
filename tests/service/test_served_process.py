"""`facetric serve` as people run it: a process, stopped by a signal while it is busy."""

import inspect
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, fields
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

import facetric
import processes
from evaluation.run_folders import make_pictures, make_run
from facetric.cli.main import app
from facetric.cli.serve import serve
from facetric.photos import open_collection
from facetric.service import Limits, create_app
from service.running import client


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """48 pictures of 12 classes, embedded by a small network."""
    place = tmp_path_factory.mktemp("served")
    run = make_run(place, root=make_pictures(place / "pictures"))
    open_collection(place / "birds.index", facetric.load(run)).add(place / "pictures", labels_from_folders=True)
    return place / "birds.index"


@dataclass
class Served:
    """A running `facetric serve`."""

    process: subprocess.Popen
    place: Path

    @property
    def address(self):
        processes.wait_for(lambda: processes.contains(self.place / "printed", "\n"))
        return re.search(r"http://\S+", (self.place / "printed").read_text())[0]

    def stop(self, number):
        """Its exit status after this signal."""
        self.process.send_signal(number)
        return processes.wait(self.process)

    @property
    def errors(self):
        return (self.place / "errors").read_text()


@pytest.fixture
def process(index, tmp_path):
    """Starts it, with this environment."""
    started = []

    def start(**environment):
        files = {"log": tmp_path / "printed", "errors": tmp_path / "errors"}
        started.append(Served(processes.start("serve", index, "--port", 0, **files, environment=environment), tmp_path))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


def said(stderr):
    """Lines, without what a slow machine prints while it waits."""
    return [line for line in stderr.splitlines() if line != "loading the model"]


def test_sigterm_under_load_loses_no_acknowledged_decision_and_answers_what_is_under_way(process, index):
    acknowledged, answers, enough = [], [], threading.Event()
    picture = next((index.parent / "pictures").glob("*/*.png")).read_bytes()

    def decide(web, worker, ids):
        for i in range(10_000):
            name = f"bird {worker} {i}"
            photo = {"content": ids[worker], "path": ""}
            row = {"do": "name", "photos": [0], "name": name}
            change = {"format": "facetric decisions 1", "photos": [photo], "decisions": [row]}
            if web.post("/decisions", json=change).status_code == 200:
                acknowledged.append(name)
            if len(acknowledged) > 40:
                enough.set()

    def search(web, *_):
        while True:
            answers.append(web.post("/search", content=picture).status_code)

    def until_it_stops(work, *arguments):
        with client(address) as web:
            try:
                work(web, *arguments)
            except httpx.TransportError:  # it accepts no more
                return

    started = process()
    address = started.address
    with client(address) as web:
        found = web.post("/search", params={"top": 40}, content=picture).json()["neighbors"]
    ids = [one["id"] for one in found]
    threads = [threading.Thread(target=until_it_stops, args=(decide, worker, ids)) for worker in range(6)]
    threads += [threading.Thread(target=until_it_stops, args=(search,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert enough.wait(120)
    assert started.stop(signal.SIGTERM) == -signal.SIGTERM
    for thread in threads:
        thread.join()
    assert said(started.errors) == []
    kept = open_collection(index).decisions()
    names = {decision.name for decision in kept.decisions}
    assert set(acknowledged) <= names
    assert len(names) <= len(acknowledged) + 6  # one for each client that was not told any more
    assert set(answers) == {200}
    assert not list(index.glob("*.part"))


def test_ctrl_c_is_a_stop_and_a_token_comes_from_the_environment(process):
    started = process(FACETRIC_TOKEN="k" * 20)
    with client(started.address) as web:
        assert web.get("/").status_code == 401
        assert web.get("/openapi.json", headers={"Authorization": "Bearer " + "k" * 20}).json()["info"]["title"] == "facetric"
        assert started.stop(signal.SIGINT) == 130
        assert said(started.errors) == ["facetric serve: stopped"]


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["--host", "0.0.0.0"], 2, "0.0.0.0 can be reached from other machines: set a token (FACETRIC_TOKEN or --token)"),
        (["--token", "short"], 2, "a token has at least 16 letters and digits"),
        (["--max-requests", "0"], 2, "a limit is above 0; got 0 requests: raise it (--max-requests)"),
        (["--max-megapixels", "900"], 2, "lower --max-megapixels"),
        (["--host", "203.0.113.9", "--token", "k" * 20], 1, "cannot listen at 203.0.113.9:8000"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(index, arguments, code, line):
    done = CliRunner().invoke(app, ["serve", str(index), *arguments], env={"FACETRIC_TOKEN": None})
    assert done.exit_code == code
    (only,) = said(done.stderr)
    assert line in only


def test_the_command_has_the_limits_of_the_library():
    """It repeats none of them: an option that is left out is None, and the limits are the library's."""
    parameters = inspect.signature(serve).parameters
    assert [parameters[f"max_{field.name}"].default for field in fields(Limits)] == [None] * len(fields(Limits))


def test_there_has_to_be_an_index(tmp_path):
    done = CliRunner().invoke(app, ["serve", str(tmp_path / "nothing")])
    assert done.exit_code == 2
    assert "there is no index" in done.stderr
    assert not (tmp_path / "nothing").exists()


def test_a_missing_extra_is_named(index):
    script = f"""
import sys
sys.modules["uvicorn"] = None
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = staticmethod(
    lambda name, *rest, **known: None if name.startswith(("uvicorn", "fastapi")) else find(name, *rest, **known)
)
del sys.modules["uvicorn"]
sys.argv = ["facetric", "serve", {str(index)!r}]
from facetric.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    what = "facetric.service needs fastapi, which is not installed"
    assert said(done.stderr) == [f"facetric serve: {what}: pip install 'facetric[serve]'"]


def test_the_application_runs_in_a_server_of_your_own(index):
    model = facetric.load(index.parent / "first")
    photo = next((index.parent / "pictures").glob("*/*.png"))
    served = create_app(model, index, token="k" * 20, allow_hosts=["photos.example.org"])
    with TestClient(served, base_url="http://photos.example.org") as web:  # its lifespan opens the index
        assert web.get("/health").json() == {"status": "ok"}
        assert web.post("/search", content=photo.read_bytes()).status_code == 401
        web.headers["Authorization"] = f"Bearer {'k' * 20}"
        found = web.post("/search", content=photo.read_bytes()).json()
    assert found["neighbors"][0]["name"].endswith(photo.name)
    assert found["neighbors"][0]["similarity"] > 0.99


def test_a_missing_token_is_refused_before_the_model_is_loaded(index, monkeypatch):
    monkeypatch.setattr("facetric.embedder.load", lambda *_, **__: pytest.fail("loaded"))
    done = CliRunner().invoke(app, ["serve", str(index), "--host", "0.0.0.0"], env={"FACETRIC_TOKEN": None})
    assert (done.exit_code, "set a token (FACETRIC_TOKEN or --token)" in done.stderr) == (2, True), done.output
