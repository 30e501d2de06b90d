"""The commands of the docs run, page by page and in their order, on a few small photos and for two steps of training."""

import hashlib
import json
import re
import runpy
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from facetric.cli.main import app
from test_documentation import PAGES, ROOT, blocks, name_of

BRIEF = {  # what makes a command short; the page's own options stay
    "train configs/": "--set optimizer.warmup_steps=0 --steps 2 --set batches.size=16 --set data.options.min_images=17",
    "train --data folder --root photos --networks": (
        "--steps 2 --set run.choose_minutes=0.05 --set model.image_size=64 --set data.size=72"
    ),
    "train --data": "--steps 2 --set run.choose_minutes=0 --set model.image_size=64 --set data.size=72",
    "evaluate": "--restarts 1",
}
NOT_RUN = {  # the beginning of a command, and why it is only parsed (test_documentation.py)
    "facetric reproduce cub": "needs CUB-200-2011",
    "facetric reproduce glyphs": "a study takes minutes at its shortest; tests of the command are in cli/test_reproduce.py",
    "facetric reproduce folder": "a study takes minutes at its shortest; tests of the command are in cli/test_reproduce.py",
    "facetric train --data folder --root photos --set model.backbone=": "loads weights from the hub",
    "facetric export runs/photos hf://": "needs a hub; embedder/test_shared.py has one",
    "facetric embed new-photos --model hf://": "needs a hub; embedder/test_shared.py has one",
    "facetric index add milvus://": "needs a Milvus server",
    "facetric search milvus://": "needs a Milvus server",
    "facetric serve": "does not end; tests/service starts it",
    "srun": "needs Slurm, GPUs and Stanford Online Products",
}


def commands(page):
    """The lines of the page's shell blocks that call facetric or a benchmark, without comments."""
    for match in blocks(page, ["sh", "bash", "console"]):
        for line in match["code"].replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if "facetric" in words or any(word.startswith("benchmarks/") and word.endswith(".py") for word in words):
                yield words


def reason(words):
    return next((why for start, why in NOT_RUN.items() if " ".join(words).startswith(start)), None)


RUN = {page: [words for words in commands(page) if words[0] == "facetric" and not reason(words)] for page in PAGES}
SCRIPTS = sorted(
    {word for page in PAGES for words in commands(page) for word in words if re.fullmatch(r"benchmarks/\w+\.py", word)}
)


def brief(words):
    line = " ".join(words[1:])
    return [*words[1:], *next((options.split() for start, options in BRIEF.items() if line.startswith(start)), [])]


def write_photos(folder, *, n_classes=8, n_images=6):
    rng = np.random.default_rng(0)
    for label, color in enumerate(rng.integers(0, 200, (n_classes, 3))):
        (folder / f"bird {label}").mkdir(parents=True)
        for i in range(n_images):
            pixels = color + rng.integers(0, 56, (48, 64, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"bird {label}" / f"{i}.jpg")
    return folder


def write_decisions(photos):
    """As the page of groups saves them: every photo has the name of its bird."""
    files = sorted(photos.glob("*/*.jpg"))
    kinds = sorted({file.parent.name for file in files})
    record = {
        "format": "facetric decisions 1",
        "photos": [
            {
                "content": hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest(),
                "path": file.relative_to(photos).as_posix(),
            }
            for file in files
        ],
        "decisions": [
            {"do": "name", "photos": [i for i, file in enumerate(files) if file.parent.name == kind], "name": kind}
            for kind in kinds
        ],
    }
    Path("decisions.json").write_text(json.dumps(record))


def prepare(page, run):
    """In the current folder: the repository's files, photos, and what the commands of the page presuppose."""
    for name in ("configs", "benchmarks"):
        Path(name).symlink_to(ROOT / name)
    photos = write_photos(Path("photos"))
    write_photos(Path("new-photos"), n_classes=2, n_images=2)
    Path("IMG_0412.jpg").write_bytes((photos / "bird 3" / "1.jpg").read_bytes())
    if page == "README.md":
        write_photos(Path("sorted"))
    if page == "docs/your_photos.md":
        write_decisions(photos)
        names = [file.relative_to(photos).as_posix() for file in sorted(photos.glob("*/*.jpg"))]
        vectors = np.random.default_rng(0).normal(size=(len(names), 8))
        np.savez("clip.npz", vectors=vectors, path=names, label=[name.split("/")[0] for name in names])
    if page == "docs/losses.md":
        Path("my_losses.py").write_text(
            "from pytorch_metric_learning.losses import TripletMarginLoss\n\n\nclass MyLoss(TripletMarginLoss):\n    pass\n"
        )
    if page == "docs/deploy.md":
        run("train", "--data", "folder", "--root", "photos", *BRIEF["train --data"].split())
    if page in ("docs/evaluation.md", "docs/report.md"):
        run("train", "configs/glyphs.toml", *BRIEF["train configs/"].split())
    if page == "docs/evaluation.md":
        run("train", "configs/glyphs.toml", "--set", "run.name=second", *BRIEF["train configs/"].split())
        run("evaluate", "runs/second", "--restarts", "1")


@pytest.mark.filterwarnings("ignore")  # of other packages; facetric's own go to standard error
@pytest.mark.parametrize("page", [page for page in PAGES if RUN[page]], ids=name_of)
def test_the_commands_of_the_page_run_in_their_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "my_losses", None)  # what the page imports is forgotten afterwards
    del sys.modules["my_losses"]
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_MODE", "offline")

    def run(*arguments):
        ended = CliRunner().invoke(app, arguments)
        assert ended.exit_code == 0, f"facetric {shlex.join(arguments)}\n{ended.output}\n{ended.exc_info}"

    prepare(name_of(page), run)
    for words in RUN[page]:
        run(*brief(words))


def test_every_exception_is_that_of_a_command():
    found = [" ".join(words) for page in PAGES for words in commands(page)]
    assert [start for start in NOT_RUN if not any(line.startswith(start) for line in found)] == []
    assert [line for line in found if "benchmarks/" not in line and not line.startswith(("facetric ", *NOT_RUN))] == []


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_benchmark_has_the_options_that_pages_give_it(script, monkeypatch, capsys):
    """They take minutes to hours and most need CUB-200-2011: nothing is measured here."""
    monkeypatch.setattr("sys.argv", [script, "--help"])
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / script), run_name="__main__")
    assert not ended.value.code
    used = {word for page in PAGES for words in commands(page) if script in words for word in words[words.index(script) :]}
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    assert {word for word in used if word.startswith("--")} <= known
