"""No damaged file is used silently: it is made again, refused in one line, or named in a message."""

import json
import re
import shutil

import pytest

from facetric.files import sealed
from facetric.runs import Run
from facetric.training.choice import Record
from torture.damages import a_study
from torture.scenes import COMMANDS
from torture.tally import asked_for, minutes, torture_seed
from torture.turns import by_turns

pytest_plugins = ["torture.fixtures"]
pytestmark = pytest.mark.torture

CHECKPOINTS = "tiny/checkpoints"
RUN_FILES = [f"tiny/{name}" for name in ("config.toml", "manifest.json", "embeddings.npz", "evaluation.json", "calibration.json")]
SHOWN = ["tiny/environment.json", "tiny/metrics.jsonl", "tiny/config.toml", "tiny/evaluation.json", "tiny/embeddings.npz"]
# what reads it, in which place, which files (patterns), how many damages of each in one round
ROUNDS = (
    ("embedder", "run", [f"{CHECKPOINTS}/last.safetensors"], 150),
    ("resume state", "run", [f"{CHECKPOINTS}/state_00000006.pt"], 80),
    ("run", "run", [*RUN_FILES, f"{CHECKPOINTS}/best.safetensors"], 100),
    ("report", "run", SHOWN, 60),
    ("kept figures", "run", ["tiny/figures/positions.npz", "tiny/figures/clusters.npz"], 60),
    ("compare", "run", ["tiny/evaluation.json", "tiny/config.toml", "tiny/manifest.json"], 25),
    ("load", "run", ["tiny/calibration.json", "tiny/embeddings.npz"], 40),
    ("metrics", "run", ["tiny/metrics.jsonl"], 120),
    ("vectors", "npz", ["v.npz"], 120),
    ("vectors", "parquet", ["v.parquet"], 120),
    ("vectors", "csv", ["v.csv"], 120),
    ("index", "index", ["index/index.json"], 100),
    ("index", "index", ["index/*.sqlite"], 300),
    ("folders", "groups", ["sorted/.facetric-groups.json"], 60),
    ("clustering", "groups", ["groups/*.sqlite"], 30),
    ("clustering", "groups", ["groups/thumbnails/*0.jpg"], 6),
    ("cache", "cache", ["cache/*.bytes"], 80),
    ("activations", "activations", ["cache/*.f32"], 60),
    ("choice", "choice", ["choice.json"], 60),
    ("blocks", "blocks", ["blocks/*/*.npy"], 40),
    ("study", "study", ["protocol.json", "search/*.json", "study.json"], 60),
    ("decisions", "served", ["index/decisions.json"], 100),
    ("onnx", "onnx", ["model.onnx"], 60),
)


@pytest.fixture(scope="module")
def places(workshop):
    """A folder of each kind."""
    folder = workshop.folder / "damage"
    shutil.copytree(workshop.model, folder / "run" / "tiny")
    workshop.must("report", folder / "run" / "tiny")
    workshop.must("evaluate", workshop.other_model)
    for suffix in ("npz", "parquet", "csv"):
        (folder / suffix).mkdir()
        workshop.must("embed", workshop.photos, "--model", workshop.model, "-o", folder / suffix / f"v.{suffix}")
    workshop.must("index", "add", folder / "index" / "index", workshop.photos, "--model", workshop.model, "--label", "bird")
    groups = folder / "groups"
    workshop.must("cluster", workshop.photos, "-o", groups / "groups", "--model", workshop.model, "--copy-to", groups / "sorted")
    for name in ("groups", "cache", "activations", "choice", "blocks", "onnx"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "about").write_text(f"{workshop.photos}\n{workshop.model}")
    workshop.must("export", workshop.model, folder / "onnx" / "model.onnx", "--check", workshop.photos / "0")
    serve = next(command for command in COMMANDS if command.name == "serve")
    workshop.left_alone(serve)
    shutil.copytree(workshop.folder / "places" / "serve", folder / "served")
    _write_study(folder / "study")
    scores = {
        name: {0: {"oak": (0.25, 0.5), "ash": (x, 0.75)}} for name, x in (("pretrained features", 0.5), ("fine-tuned", 1.0))
    }
    Run(folder / "choice").save_choice(Record(3.5, scores).to_json())
    return folder


def _write_study(folder):
    (folder / "search").mkdir(parents=True)
    a_study(folder)._keep_protocol()
    trials = [
        {"parameters": {"loss.margin": x / 7}, "objective": x / 3, "scores": [{"nmi": x}], "seconds": 2.0} for x in range(4)
    ]
    (folder / "search" / "npairs.json").write_bytes(sealed({"trials": trials}))
    (folder / "study.json").write_bytes(sealed({"npairs": {"chosen": {"loss.margin": 3 / 7}}}))


def one_round(workshop, places, tally, number, turn):
    reader, kind, patterns, n = ROUNDS[number]
    place = workshop.folder / "rounds" / f"{number}"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(places / kind, place, symlinks=True)
    plan, results, log = (place.with_suffix(suffix) for suffix in (".plan", ".outcomes", ".log"))
    log.unlink(missing_ok=True)
    others = {
        f"tiny/{name}": str(workshop.other_model / name) for name in ("embeddings.npz", "evaluation.json", "calibration.json")
    }
    others[f"{CHECKPOINTS}/best.safetensors"] = str(workshop.other_model / "checkpoints" / "best.safetensors")
    seed = [torture_seed(), number, turn]
    request = {"seed": seed, "place": str(place), "reader": reader, "files": patterns, "others": others, "n": n}
    plan.write_text(json.dumps({**request, "results": str(results)}))
    results.write_text("[]")
    environment = {"FACETRIC_CACHE": str(workshop.folder / f"cache{number}")}
    status = workshop.forge.run(plan, function="torture.damages:bulk", log=log, environment=environment)
    outcomes = json.loads(results.read_text())
    assert status in (0, -11, -6), log.read_text()
    for name, damage, bad in outcomes:
        file = re.sub("[0-9a-f]{10,}", "*", name.rsplit("/", 1)[-1])
        tally.add(f"{reader}: {file}", bad=bad and f"{damage}: {bad}")
    if status < 0:
        tally.add(reader, bad=f"signal {-status}: {outcomes[-1]}")
    return 1


def test_damaged_files(workshop, places, tally):
    numbers = [number for number, (reader, *_) in enumerate(ROUNDS) if asked_for(reader)]
    by_turns(numbers, lambda number, turn: one_round(workshop, places, tally, number, turn), end=minutes(0.15))
    assert not tally.failures, "\n".join(tally.failures[:40])
