"""`facetric reproduce` on a small folder of photos: relative paths, --set, a loss that is left out, signals and exit codes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import processes
from facetric.cli.main import app
from facetric.embedder import Network
from facetric.runs import open_run

HEAD = ("--setting", "head", "--trials", 1, "--seeds", 1, "--steps", 10)
SMALL = ("--set", "data.size=72", "--set", "model.image_size=64")  # pixels
QUARTER, HALF = ("--set", "data.validation_fraction=0.25"), ("--set", "data.options.test_fraction=0.5")
SETTINGS = (*QUARTER, "--set", "run.checkpoint_every=5", "--set", "optimizer.name=adamw", *SMALL)

OTHER = ("--set", "data.flip=false", "--method", "triplet_semihard", "--output", "study")


def facetric(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def write_photos(root, *, n_classes=16, n_images=6):
    """Pictures in the color of their class."""
    rng = np.random.default_rng(0)
    for label in range(n_classes):
        folder = root / f"class {label:02}"
        folder.mkdir(parents=True)
        color = rng.integers(0, 200, 3)
        for i in range(n_images):
            pixels = color + rng.integers(0, 56, (40, 40, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.jpg")
    return root


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with photos, and a cache of its own."""
    place = tmp_path_factory.mktemp("reproduce")
    write_photos(place / "photos")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FACETRIC_CACHE", str(place / "cache"))
        patch.chdir(place)
        yield place


@pytest.fixture(scope="module")
def command(place):
    """A study under a relative root and in a relative folder; N-pairs would need 8 classes, and 6 train."""
    methods = ("--method", "triplet_semihard", "--method", "npairs", "--method", "facility_location")
    return ("reproduce", "folder", "--root", "photos", *HEAD, *HALF, *SETTINGS, "--jobs", 1, "--output", "study", *methods)


@pytest.fixture(scope="module")
def embedded():
    """Every image that went through the backbone while `finished` was made, as often as it did."""
    return []


@pytest.fixture(scope="module")
def finished(place, command, embedded):
    whole = Network.trunk

    def counting(network, images):
        embedded.extend(image.numpy().tobytes() for image in images if image.any())  # blank ones ask for a shape
        return whole(network, images)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FACETRIC_CACHE", str(place / "cache of the study"))
        patch.setattr(Network, "trunk", counting)
        return facetric(*command)


@pytest.mark.usefixtures("finished")
def test_every_image_goes_through_the_frozen_backbone_once_whatever_it_is_for(embedded):
    assert len(embedded) == len(set(embedded)) == 16 * 6


def test_study_evaluation_and_report_call_the_test_classes_by_one_fingerprint(place, finished):
    [(n_classes, classes)] = re.findall(r"runs in all; test classes: (\d+) \((\w{8})\)", finished.stderr)
    assert n_classes == "8"
    run = place / "study" / "runs" / "facility_location-seed0"
    assert f"48 images of 8 classes ({classes}), " in str(open_run(run).evaluation())
    assert f"48 test images of 8 classes ({classes})" in (run / "report.html").read_text()
    protocol = json.loads((place / "study" / "protocol.json").read_text())
    assert protocol["setting"]["test_classes"] == f"8 ({classes})"


def test_it_prints_the_table_and_writes_it(place, finished):
    assert finished.exit_code == 0, finished.stderr
    assert "facility_location-seed0" in finished.stdout
    for name in ("table.md", "table.png", "study.json", "runs/facility_location-seed0/report.html"):
        assert (place / "study" / name).is_file()
        assert name in finished.stdout


def test_a_loss_that_cannot_fill_its_batches_is_left_out_and_named(place, finished):
    reason = "npairs is left out: a batch of 16 needs 8 distinct classes; the training set has 6 classes with 2 images or more"
    assert reason in finished.stderr
    assert finished.stderr.index(reason) < finished.stderr.index("trial 1 of 1")
    assert reason in finished.stdout
    assert reason in (place / "study" / "table.md").read_text()
    assert "a batch of 16" in json.loads((place / "study" / "study.json").read_text())["npairs"]["left_out"]
    assert not list((place / "study").rglob("npairs*"))


def test_settings_are_in_every_run_and_in_the_protocol(place, finished):
    protocol = json.loads((place / "study" / "protocol.json").read_text())
    assert protocol["setting"]["overrides"]["optimizer.name"] == "adamw"
    for run in (place / "study" / "runs").iterdir():
        assert 'name = "adamw"' in (run / "config.toml").read_text()


@pytest.mark.parametrize("root", ["photos", "./photos", "absolute"])
def test_finished_runs_survive_any_spelling_of_the_root(place, command, finished, root):
    files = {path: path.stat().st_mtime_ns for path in (place / "study" / "runs").rglob("evaluation.json")}
    assert len(files) == 2
    spelled = str(place / "photos") if root == "absolute" else root
    again = facetric(*(spelled if argument == "photos" else argument for argument in command))
    assert again.exit_code == 0, again.stderr
    assert {path: path.stat().st_mtime_ns for path in (place / "study" / "runs").rglob("evaluation.json")} == files
    assert again.stderr.count("already done") == 2
    assert not (place / "study" / "superseded").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("birds",), "dataset must be one of glyphs, cub"),
        (("folder", "--setting", "head"), "pass root (--root path/to/it)"),
        (("folder", "--root", "nowhere", "--setting", "head"), "nowhere does not exist"),
        (("folder", "--root", "photos", "--setting", "haed"), "did you mean 'head'?"),
        (("folder", "--root", "photos", *HEAD, "--method", "npair"), "did you mean 'npairs'?"),
        (("folder", "--root", "photos", *HEAD, "--set", "optimizer.head_lr=1"), "the study searches this setting"),
        (("folder", "--root", "photos", *HEAD, *HALF, *SETTINGS, "--method", "npairs"), "no loss is left to study: npairs"),
        (
            ("folder", "--root", "photos", *HEAD, *HALF, *SETTINGS, *OTHER),
            "was begun with another data.flip: True there, False here",
        ),
    ],
)
def test_a_usage_error_is_one_line_and_status_2(place, finished, arguments, words):
    result = facetric("reproduce", *arguments)
    assert result.exit_code == 2
    line = result.stderr.splitlines()[-1]
    assert line.startswith("facetric reproduce: ")
    assert words in line


def test_a_failure_while_running_is_one_line_and_status_1(place, tmp_path):
    (tmp_path / "study").write_text("a file in the way")
    result = facetric("reproduce", "folder", "--root", "photos", *HEAD, *SETTINGS, "--output", tmp_path / "study")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith("facetric reproduce: ")


@pytest.fixture
def few_birds(place, tmp_path):
    """A study of 16 species in the layout of CUB, which are not the published ones."""
    root = tmp_path / "CUB_200_2011"
    names = [f"{label + 1:03}.bird" for label in range(16)]
    images = [(name, f"class {label:02}", f"{i}.jpg") for label, name in enumerate(names) for i in range(6)]
    for name, folder, file in images:
        (root / "images" / name).mkdir(parents=True, exist_ok=True)
        os.link(place / "photos" / folder / file, root / "images" / name / file)
    (root / "classes.txt").write_text("".join(f"{number} {name}\n" for number, name in enumerate(names, 1)))
    (root / "images.txt").write_text("".join(f"{n} {name}/{file}\n" for n, (name, _, file) in enumerate(images, 1)))
    (root / "image_class_labels.txt").write_text("".join(f"{n} {int(name[:3])}\n" for n, (name, *_) in enumerate(images, 1)))
    output = ("--output", tmp_path / "study")
    return ("reproduce", "cub", "--root", root, *HEAD, *SETTINGS, "--method", "facility_location", "--jobs", 1, *output)


ANY_COUNTS = ("--set", "data.options.check_counts=false")


@pytest.mark.slow
def test_a_study_of_counts_that_differ_from_the_published_ones_comes_to_its_end(few_birds):
    accepted = facetric(*few_birds, *ANY_COUNTS)
    assert accepted.exit_code == 0, accepted.stderr
    assert "facility_location-seed0" in accepted.stdout


def test_counts_that_differ_from_the_published_ones_are_accepted_on_the_command_line(few_birds):
    refused = facetric(*few_birds)
    assert refused.exit_code == 2
    assert f"({' '.join(ANY_COUNTS)})" in refused.stderr
    begun = facetric(*few_birds, *ANY_COUNTS, "--set", "model.weights=nowhere.safetensors")
    first, second = begun.stderr.splitlines()  # so that it ends where it would begin to train
    assert "4 runs in all" in first
    assert "nowhere.safetensors" in second


@pytest.mark.parametrize(
    ("number", "status", "jobs"),
    [(signal.SIGTERM, 143, 1), (signal.SIGINT, 130, 2), pytest.param(signal.SIGTERM, 143, 2, marks=pytest.mark.slow)],
)
def test_a_signal_stops_it_and_its_workers_at_once(place, tmp_path, number, status, jobs):
    """The signal goes to the parent alone, as from a service manager; it ends when its workers have."""
    steps = ("--steps", 100_000, "--set", "run.checkpoint_every=20", *SMALL)  # no run comes to its end
    arguments = [
        *("reproduce", "folder", "--root", "photos", "--setting", "head", *QUARTER, *steps),
        *("--method", "triplet_semihard", "--method", "facility_location", "--jobs", jobs, "--output", tmp_path / "study"),
    ]
    process = processes.start(*arguments, log=tmp_path / "said", cwd=str(place))
    deadline = time.monotonic() + 500
    while not list(tmp_path.rglob("state_*.pt")) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(number)
    assert processes.wait(process) == status, (tmp_path / "said").read_text()
    lines = (tmp_path / "said").read_text().splitlines()
    assert lines[-1] == "facetric reproduce: interrupted; start the same command again to resume"
    assert "Traceback" not in "".join(lines)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads the children of a process from /proc")
def test_workers_do_not_outlive_a_study_that_is_killed(place, tmp_path):
    steps = ("--steps", 100_000, "--set", "run.checkpoint_every=20")
    arguments = [
        *("reproduce", "folder", "--root", "photos", "--setting", "head", *QUARTER, *steps),
        *("--method", "triplet_semihard", "--method", "facility_location", "--jobs", 2, "--output", tmp_path / "study"),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "facetric", *map(str, arguments)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=place
    )
    try:
        deadline = time.monotonic() + 500
        while not list(tmp_path.rglob("state_*.pt")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    finally:
        process.kill()
        process.wait()
    deadline = time.monotonic() + 60
    while any(is_running(pid) for pid in children):
        assert time.monotonic() < deadline, children
        time.sleep(0.1)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
