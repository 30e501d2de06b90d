"""Shared by the tests: a process that waits without spinning, a cache of their own, runs, golden values, and a browser."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

import facetric
from facetric.machine import available_cores, prepare_process

prepare_process()  # before any test imports torch
SOURCE = Path(facetric.__file__).parent
changed = max(file.stat().st_mtime for file in SOURCE.rglob("*.py") if "numba" in file.read_text())
for compiled in SOURCE.rglob("*.nbc"):  # numba compares a kernel with its own file only, not with those that it has inlined
    if compiled.stat().st_mtime < changed:
        compiled.unlink(missing_ok=True)
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:  # each worker has its share of the cores
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, available_cores() // int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))))
EXAMPLES = int(os.environ.get("FACETRIC_EXAMPLES", "30"))  # of every law; a night may try thousands
settings.register_profile("facetric", deadline=None, max_examples=EXAMPLES)  # a busy machine is not a failure
settings.load_profile("facetric")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """Nothing is left in the cache of who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FACETRIC_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def golden_folder():
    """The authors' golden values; tests that need them are skipped without FACETRIC_ORACLE."""
    folder = os.environ.get("FACETRIC_ORACLE")
    if not folder:
        pytest.skip("set FACETRIC_ORACLE to the folder of golden values")
    assert any(Path(folder).glob("*.npz")), f"FACETRIC_ORACLE={folder} holds no .npz file"
    return Path(folder)


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A run of 12 classes before its first step, beside its `pictures`. Nothing writes into it."""
    from evaluation.run_folders import make_pictures, make_run

    place = tmp_path_factory.mktemp("run")
    return make_run(place, root=make_pictures(place / "pictures"))


@pytest.fixture(scope="session")
def model(run):
    import facetric

    return facetric.load(run)


@pytest.fixture(scope="session")
def evaluated_run(tmp_path_factory):
    """Such a run that was evaluated, and so has a pair model of its own. Nothing writes into it."""
    from evaluation.run_folders import make_pictures, make_run
    from facetric.runs import open_run

    place = tmp_path_factory.mktemp("evaluated")
    made = make_run(place, root=make_pictures(place / "secret-pictures"))
    open_run(made).evaluate(n_restarts=1, facility=False)
    return made


@pytest.fixture(scope="module")  # not longer: Playwright keeps an event loop running, which notebooks need for themselves
def browser():
    """A real Chromium, without a screen and with no network of its own."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("there is no Chromium on this machine")
    quiet = ("background-networking", "component-update", "sync", "gpu")
    flags = ["--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in quiet)]
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=executable, headless=True, args=flags)
        yield started
        started.close()
