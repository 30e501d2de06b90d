"""No damaged file is used silently: what cannot be made again has a checksum, and is refused in one line.

Weights, resume states, vectors, evaluations: damaged in every way, and read by what reads them.
"""

import shutil
import signal

import numpy as np
import pytest

import facetric
from facetric.embedder import Vectors
from facetric.runs import open_run
from facetric.runs.states import read_newest_state
from torture.inputs import damaged
from torture.scenes import Workshop
from torture.tally import SEED, Tally

SECONDS = 60  # for one reader
CHECKPOINTS = "tiny/checkpoints"


def _loaded(place):
    model = facetric.load(place / "tiny")
    return model.fingerprint, model.fitted_to, repr(model.pair_model and model.pair_model.as_dict())


def _run(place):
    run = open_run(place / "tiny")
    return (run.manifest.fingerprint, run.embeddings().fingerprint, run.evaluation().fingerprint)


def _state(place):
    return repr(sorted(read_newest_state(place / CHECKPOINTS).items()))


def _vectors(place):
    found = Vectors.load(place / "v.npz")
    return found.names, found.hashes, found.model, found.vectors.tobytes()


READERS = {
    "weights": (_loaded, [f"{CHECKPOINTS}/best.safetensors", f"{CHECKPOINTS}/best.pair_model.json"]),
    "run": (_run, [f"tiny/{name}" for name in ("manifest.json", "embeddings.npz", "evaluation.json")]),
    "resume state": (_state, [f"{CHECKPOINTS}/state_00000006.pt"]),
    "vectors": (_vectors, ["v.npz"]),
    "exported": (lambda place: facetric.load(place / "model.onnx").fingerprint, ["model.onnx"]),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A folder with a file of each kind, and one of another run."""
    workshop = Workshop(tmp_path_factory.mktemp("torture"))
    folder, other = workshop.folder / "damage", workshop.folder / "others"
    workshop.must("evaluate", workshop.other_model)
    for place, model in ((folder, workshop.model), (other, workshop.other_model)):
        shutil.copytree(model, place / "tiny")
        workshop.must("embed", workshop.photos, "--model", model, "-o", place / "v.npz")
        workshop.must("export", model, place / "model.onnx", "--check", workshop.photos / "0")
    return folder, other


def outcome(reader, place):
    """The result, None where it was refused, and what is wrong with the refusal."""
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it hangs"))
    signal.alarm(SECONDS)
    try:
        return reader(place), ""
    except (ValueError, OSError, RuntimeError) as error:  # what the commands turn into one line
        foreign = type(error).__module__.split(".")[0] not in ("builtins", "facetric")
        return None, repr(error) if foreign or len(str(error).strip().splitlines()) != 1 else ""
    except Exception as error:
        return None, f"foreign exception: {error!r}"
    finally:
        signal.alarm(0)


@pytest.mark.parametrize("name", READERS)
def test_damaged_files(places, name, caplog):
    (folder, others), (reader, files), tally = places, READERS[name], Tally(share=0.2 / len(READERS))
    expected, bad = outcome(reader, folder)
    assert expected is not None, bad
    rng = np.random.default_rng([SEED, *name.encode()])
    for _ in tally.rounds():
        for file in files:
            data = (folder / file).read_bytes()
            hurt, kind = damaged(data, rng, (others / file).read_bytes())
            (folder / file).write_bytes(hurt)
            caplog.clear()
            found, bad = outcome(reader, folder)
            (folder / file).write_bytes(data)
            if found not in (None, expected) and kind != "other file" and (folder / file).name not in caplog.text:
                bad = f"silently used: {str(found)[:200]} instead of {str(expected)[:200]}"
            tally.add(f"{name}: {file}", bad=bad and f"{kind}: {bad}")
    tally.check()
