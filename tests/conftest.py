"""Shared by the tests: a process that waits without spinning, where the golden values are, and a browser."""

import atexit
import functools
import gc
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import typer.testing
from filelock import FileLock
from hypothesis import settings

from facetric.machine import available_cores, prepare_process
from forge import NARROW, PHOTOS, TRAINING, Forge
from workers import warm

prepare_process()  # before any test imports torch
EXAMPLES = int(os.environ.get("FACETRIC_EXAMPLES", "30"))  # of every law; a night may try thousands
settings.register_profile("facetric", deadline=None, max_examples=EXAMPLES)  # a busy machine is not a failure
settings.load_profile("facetric")
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 8 << 30:  # tests write two gigabytes, and wait for a disk
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
typer.testing._get_command = functools.cache(typer.testing._get_command)  # to make one takes longer than most commands

gc.disable()  # until all is imported and collected, which leaves nothing to free


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """More than there are cores: some tests wait, for processes, for a browser, for a time to pass."""
    return available_cores() + 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config, specs):
    """Each worker is a fork of a process that has imported everything, and has its share of the cores."""
    from execnet import XSpec

    if sys.platform != "linux":  # elsewhere a process that has imported torch may not be forked
        return
    n_threads = max(1, available_cores() // len(specs))
    config.warm_process, python = warm(config._tmp_path_factory.getbasetemp() / "workers", n_threads)
    specs[:] = [XSpec(f"popen//python={python}") for _ in specs]


def pytest_collection_finish():
    """What is there now stays: the collector need not look at it again and again, half a second each time."""
    gc.freeze()
    gc.enable()


@atexit.register
def _collect_the_rest():
    """So that the interpreter can take everything down; some libraries report what it could not."""
    gc.unfreeze()
    gc.enable()


def pytest_collection_modifyitems(config, items):
    """Files whose tests ask the fork server, or take long, come first: one worker gets them, and no long test is the last one.

    Torture takes as long as it is told to: it runs with `-m torture` only.
    """
    long = {"test_documentation.py", "test_core_install.py", "test_lazy.py", "test_onnx_export.py"}
    first = {item.path for item in items if item.path.name in long or "server" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: item.path not in first)
    if "torture" in (config.option.markexpr or ""):
        return
    left_out = [item for item in items if item.get_closest_marker("torture")]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory):
    """The folder of all workers of this session."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def _own_cache(shared_folder):
    """Nothing is left in the cache of who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FACETRIC_CACHE", str(shared_folder / "cache"))
        yield


@pytest.fixture(scope="session", autouse=True)
def _glyphs_drawn_once(shared_folder):
    """Characters are drawn once for all workers, by the first that needs them; test_glyphs.py draws them again."""
    import numpy as np

    from facetric.images import glyphs

    draw = glyphs._draw_all

    @functools.cache
    @functools.wraps(draw)
    def drawn(size, min_faces):
        file = shared_folder / f"glyphs {size} {min_faces}.npz"
        with FileLock(f"{file}.lock"):
            if not file.is_file():
                parts = draw(size, min_faces)
                np.savez(file.with_suffix(".part.npz"), *parts)
                file.with_suffix(".part.npz").rename(file)
                return parts
            with np.load(file) as kept:
                return tuple(kept.values())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(glyphs, "_draw_all", drawn)
        yield drawn


@pytest.fixture(scope="session", autouse=True)
def glyphnet_widths():
    """A quarter of the channels, and the real ones for who asks: few tests are about what a network learns."""
    from facetric.embedder import glyphnet

    real = glyphnet.WIDTHS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(glyphnet, "WIDTHS", NARROW)
        yield real


@pytest.fixture(scope="session", autouse=True)
def _matlab_files_read_once():
    """Each is read by a process that imports SciPy; the small copies of Cars196 are the same in all tests."""
    from facetric.images.readers import cars, cars_names

    read, found = cars_names.read_mat, {}

    def kept(path):
        content = re.sub(rb"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}", b"", path.read_bytes(), count=1)  # when it was written
        key = (cars_names._READ_MAT, content)
        if key not in found:
            found[key] = read(path)  # an error is not kept
        return dict(found[key])

    with pytest.MonkeyPatch.context() as patch:
        for module in (cars, cars_names):
            patch.setattr(module, "read_mat", kept)
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
def server(tmp_path_factory, shared_folder):
    """Starts commands, and functions of the tests, in processes of their own that need not import anything."""
    forge = Forge(tmp_path_factory.mktemp("forge"), [*TRAINING, *PHOTOS], shared=shared_folder)
    yield forge
    forge.close()


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
    """Such a run that was evaluated, and so is calibrated. Nothing writes into it."""
    from evaluation.run_folders import make_pictures, make_run
    from facetric.runs import evaluate_run

    place = tmp_path_factory.mktemp("evaluated")
    made = make_run(place, root=make_pictures(place / "secret-pictures"))
    evaluate_run(made, n_restarts=1, facility=False)
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
