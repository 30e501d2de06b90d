"""Every kind of file that we write, damaged in every way, and read by the commands that use it.

Damage is silent when the command succeeds with another result and does not name the file.
"""

import contextlib
import io
import json
import logging
import os
import shutil
import signal
import sys
import traceback
from pathlib import Path

import numpy as np

SECONDS = 60  # for one command
KINDS = ("bit", "bit", "bits", "cut", "zeros", "swap", "moved", "longer", "other file", "empty")
APPENDED = "metrics.jsonl"  # a log that grows: nobody misses rows at its end


def damaged(data, rng, other):
    """The bytes after an accident, and its name. `other` are those of a file of the same kind from elsewhere."""
    kind = KINDS[rng.integers(len(KINDS))]
    raw = bytearray(data)
    if kind in ("bit", "bits"):
        for _ in range(1 if kind == "bit" else int(rng.integers(2, 9))):
            raw[rng.integers(len(raw))] ^= 1 << rng.integers(8)
    elif kind == "cut":
        raw = raw[: rng.integers(len(raw))]
    elif kind == "zeros":
        start, size = int(rng.integers(len(raw))), int(rng.integers(1, 513))
        raw[start : start + size] = bytes(len(raw[start : start + size]))
    elif kind in ("swap", "moved"):
        size = int(rng.integers(1, max(2, min(513, len(raw) // 2))))
        a, b = (int(x) for x in rng.integers(0, max(1, len(raw) - size), 2))
        first, second = bytes(raw[a : a + size]), bytes(raw[b : b + size])
        raw[a : a + size] = second
        if kind == "swap":
            raw[b : b + size] = first
    elif kind == "longer":
        raw += rng.bytes(int(rng.integers(1, 100)))
    elif kind == "other file":
        raw = bytearray(other)
    else:
        raw = bytearray()
    return bytes(raw), kind


def bulk(plan_file):
    """In a child of the forge: many damages to the files of one place, one after the other; the outcomes as JSON."""
    plan = json.loads(Path(plan_file).read_text())
    rng = np.random.default_rng(plan["seed"])
    place, results = Path(plan["place"]), Path(plan["results"])
    reader = READERS[plan["reader"]]
    expected, said, bad = _outcome(reader, place)
    assert expected is not None, f"{plan['reader']} fails on an undamaged file: {said} {bad}"
    outcomes = []
    files = [file for pattern in plan["files"] for file in sorted(place.glob(pattern))]
    assert files, f"there is no {plan['files']} in {place}"
    for file in files:
        name = file.relative_to(place).as_posix()
        shutil.copytree(place, pristine := place.with_name(place.name + ".pristine"), symlinks=True)
        data, other = (
            file.read_bytes(),
            Path(plan["others"][name]).read_bytes() if name in plan["others"] else file.read_bytes()[::-1],
        )
        for _ in range(plan["n"]):
            hurt, kind = damaged(data, rng, other)
            if hurt == data or (file.name == APPENDED and kind in ("cut", "zeros", "empty", "longer")):
                continue
            file.write_bytes(hurt)
            results.write_text(json.dumps([*outcomes, [name, kind, "the process died"]]))
            found, said, bad = _outcome(reader, place)
            if not bad and found is not None and found != expected and file.name not in said:
                bad = f"silently used: {str(found)[:200]} instead of {str(expected)[:200]}; it said {said!r}"
            if bad:
                kept = results.with_name(f"{results.name}.{len(outcomes)}.damaged")
                kept.write_bytes(hurt)
                bad = f"{bad} ({kept})"
            outcomes.append([name, kind, bad])
            shutil.rmtree(place)
            shutil.copytree(pristine, place, symlinks=True)
        shutil.rmtree(pristine)
    results.write_text(json.dumps(outcomes))


def _outcome(reader, place):
    """The result (None if it was refused), what was said, and what went wrong: a foreign exception, or a traceback."""
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    logging.getLogger("facetric").addHandler(handler)
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stderr(said):
            return reader(place, said), said.getvalue(), ""
    except (ValueError, OSError, RuntimeError) as error:  # what the commands turn into one line
        lines = str(error).strip().splitlines()
        foreign = type(error).__module__.split(".")[0] not in ("builtins", "facetric")
        bad = f"{type(error).__name__}: {error}" if foreign or len(lines) != 1 or isinstance(error, TimeoutError) else ""
        return None, said.getvalue() + str(error), bad
    except Exception:
        return None, said.getvalue(), f"foreign exception: {traceback.format_exc(limit=-3)}"
    finally:
        signal.alarm(0)
        logging.getLogger("facetric").removeHandler(handler)


def _too_long(*_):
    raise TimeoutError("it hangs")


def _command(*arguments):
    """A facetric command in this process; its standard output, or an error of one line."""
    from facetric.cli.main import app

    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        try:
            app([str(argument) for argument in arguments], prog_name="facetric", standalone_mode=True)
        except SystemExit as end:
            if end.code:
                said = sys.stderr.getvalue().strip().splitlines()
                if not said or not said[-1].startswith("facetric"):
                    raise AssertionError(f"exit {end.code} without a line: {said}") from None
                raise ValueError(said[-1]) from None
    return shown.getvalue()


def _model(place, said):
    from facetric.embedder import load_network

    embedder = load_network(place / "tiny" / "checkpoints" / "last.safetensors")
    return [float(tensor.double().sum()) for tensor in embedder.state_dict().values()], repr(embedder.input_spec)


def _state(place, said):
    from facetric.runs.states import read_newest_state

    return repr(sorted(read_newest_state(place / "tiny" / "checkpoints").items()))


def _run(place, said):
    from facetric.runs import open_run

    run = open_run(place / "tiny")
    found = {"config": run.config.model_dump_json(), "manifest": run.manifest.fingerprint, "damage": run.damage()}
    said.write(" ".join(run.damage()))
    for name, read in (("embeddings", run.embeddings), ("evaluation", run.evaluation)):
        found[name] = read().fingerprint
    found["calibration"] = repr(run.calibration())
    return {key: value for key, value in found.items() if key != "damage"}


def _report(place, said):
    from facetric.report.run_record import read_run

    record = read_run(place / "tiny")
    said.write(" ".join(record.notes))
    images = None if record.images is None else (record.images.vectors.tobytes(), record.images.image_names)
    return repr((record.dataset, images, record.scores, record.panels, record.config, record.environment, record.command))


def _kept(place, said):
    from facetric.report.kept_results import kept_clusters, kept_positions
    from facetric.runs import open_run

    found = open_run(place / "tiny").embeddings()
    positions = kept_positions(place / "tiny", found.vectors[:30])
    return positions.tobytes(), kept_clusters(place / "tiny", found.vectors, found.labels, metric="cosine").tobytes()


def _compare(place, said):
    return _command("compare", place / "tiny")


def _loaded(place, said):
    from facetric.embedder import load

    model = load(place / "tiny")
    return model.fingerprint, repr(model.calibration)


def _resumed(place, said):
    """The rows that a resumed run keeps."""
    from facetric.runs.metrics_log import MetricsLog, read_rows

    log = place / "tiny" / "metrics.jsonl"
    MetricsLog(log, from_step=6).close()
    rows, n_broken = read_rows(log)
    said.write(f"metrics.jsonl: {n_broken} rows are damaged" if n_broken else "")
    return repr(rows)


def _vectors(place, said):
    from facetric.embedder import read_vectors

    (file,) = place.glob("v.*")
    found = read_vectors(file)
    return found.paths, found.contents, found.model, found.vectors.tobytes()


def _index(place, said):
    from facetric.photos.places import existing, place_of

    about = existing(place / "index")
    with place_of(place / "index").store(about, read_only=True) as store:
        hits = store.search(np.ones((1, about.dimensions), dtype=np.float32), top=50)
        return repr(about), repr(store.entries()), repr(hits), repr(store.labels())


def _groups(place, said):
    """Vectors and thumbnails of a clustering are used again; damaged ones are made again, or refused."""
    photos, model = (place / "about").read_text().splitlines()
    _command("cluster", photos, "-o", place / "groups", "--model", model)
    return (place / "groups" / "clusters.csv").read_text(), (place / "groups" / "clusters.html").read_text()


def _arranged(place, said):
    from facetric.photos.arrangement import _read_record

    return repr(_read_record(place / "sorted"))


def _cache(place, said):
    """The hashes of files and prepared pictures, from the cache or made again."""
    from facetric.images.fingerprints import content_fingerprints
    from facetric.images.prepared import prepare

    photos = sorted(Path((place / "about").read_text().splitlines()[0]).rglob("*.jpg"))[:8]
    os.environ["FACETRIC_CACHE"] = str(place / "cache")
    prepared = prepare(photos, size=32)
    return content_fingerprints(photos).tobytes(), prepared.pixels[prepared.rows].tobytes()


def _activations(place, said):
    """What the frozen part gives, from the cache or made again."""
    from facetric.embedder import build_network
    from facetric.embedder.activations import build_trunk_cache, embed_activations

    os.environ["FACETRIC_CACHE"] = str(place / "cache")
    images = np.random.default_rng(0).integers(0, 256, (12, 36, 36), dtype=np.uint8)
    network = build_network("glyphnet", weights="none", dim=4, freeze_through="all")
    return embed_activations(network, build_trunk_cache(network, images, n_views=0, center=True)).tobytes()


def _choice(place, said):
    """The scores of recipes that are used again when a choice continues."""
    from facetric.runs import Run
    from facetric.training.choice import _kept

    return repr(_kept(Run(place)))


def _blocks(place, said):
    """Blocks of embeddings are used again, or made again."""
    from facetric.embedder import build_network
    from facetric.embedder.embedding import embed

    images = np.random.default_rng(0).integers(0, 256, (12, 36, 36), dtype=np.uint8)
    network = build_network("glyphnet", weights="none", dim=4)
    return embed(network, images, folder=place / "blocks", block_size=4, batch_size=4).vectors.tobytes()


def _study(place, said):
    """What decides the runs of a study, its trials, and what another study takes from it."""
    from facetric.training.study.reproduction import _choices
    from facetric.training.study.trials import read_trials

    a_study(place)._keep_protocol()
    trials = [
        (trial.parameters, trial.objective) for path in sorted((place / "search").glob("*.json")) for trial in read_trials(path)
    ]
    return repr(trials), repr(_choices(place, ["npairs"])), (place / "protocol.json").read_text()


def a_study(folder):
    from facetric.training.study.spaces import METHODS
    from facetric.training.study.study import Setting, Study

    return Study(folder, Setting({"run": {"steps": 10}}, {}), {"npairs": METHODS["npairs"]})


def _decisions(place, said):
    from facetric.photos import Decisions

    return Decisions.read(place / "index" / "decisions.json")


def _onnx(place, said):
    from facetric.embedder.onnx_engine import read_network

    network = read_network(place / "model.onnx")
    picture = np.full((network.description.size,) * 2, 99, dtype=np.uint8)[..., None]
    return repr(network.description), network.vectors([picture]).tobytes()


READERS = {
    "embedder": _model, "resume state": _state, "run": _run, "report": _report, "kept figures": _kept, "compare": _compare,
    "load": _loaded, "metrics": _resumed, "vectors": _vectors, "index": _index, "clustering": _groups, "folders": _arranged,
    "cache": _cache, "activations": _activations, "choice": _choice, "blocks": _blocks, "study": _study,
    "decisions": _decisions, "onnx": _onnx,
}  # fmt: skip
