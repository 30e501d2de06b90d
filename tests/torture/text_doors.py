"""Settings, records, files, pictures and command lines that are right, nearly right and wrong: read, or refused in one line."""

import io
import json
import tempfile
import tomllib
from contextlib import chdir, suppress
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from PIL import Image

from torture.inputs import INTEGERS, ODD, REFUSED, batch, call, damaged

KEYS = st.sampled_from(
    """run.steps run.seed run.name run.threads run.validate_every data.name data.size data.pad data.options data.root model.dim
    model.backbone model.weights loss.name loss.margin loss.margin_weight loss.options batches.size batches.class_ratio
    optimizer.name optimizer.head_lr optimizer.warmup_steps run.x x.y run""".split()  # noqa: SIM905
)
VALUES = st.one_of(
    st.sampled_from(ODD), st.integers(), st.floats(), st.text(max_size=6), st.dictionaries(st.text(max_size=3), st.integers())
)


def configuration(draw):
    from facetric.runs.config_file import apply_override, parse_config, to_toml

    raw = {
        "run": {"name": "a", "steps": 5},
        "data": {"name": "glyphs"},
        "model": {"backbone": "glyphnet"},
        "loss": {"name": "triplet"},
    }
    for _ in range(draw(st.integers(1, 3))):
        key, value = draw(KEYS), draw(VALUES)
        if draw(st.booleans()):
            call(apply_override, raw, f"{key}={value}")
        elif "." in key:
            table, name = key.split(".")
            if isinstance(raw.setdefault(table, {}), dict):
                raw[table][name] = value
    config = call(parse_config, raw)
    if config is not REFUSED:
        text = call(lambda: to_toml(config))
        assert text is REFUSED or parse_config(tomllib.loads(text)) == config


def decisions(draw):
    from facetric.photos.decisions import Decisions

    photo = st.fixed_dictionaries({"content": VALUES, "path": VALUES}) | VALUES
    kinds = st.sampled_from(["same", "different", "name", "reject", "x", 3])
    row = st.fixed_dictionaries({"do": kinds, "photos": st.lists(INTEGERS, max_size=4), "name": VALUES})
    record = {"photos": st.lists(photo, max_size=4), "decisions": st.lists(row, max_size=4)}
    record = st.fixed_dictionaries({"format": st.just("facetric decisions 1"), **record})
    found = call(Decisions.from_dict, draw(record | VALUES))
    if found is not REFUSED:
        call(found.constraints, ["a", "b"], {"a.jpg": "a"})


def pictures(draw):
    """Bytes of a picture of every format, damaged or not: pixels as Pillow has them, or an ImageError of one line."""
    from facetric.images.decoding import open_image

    seed = draw(st.integers(0, 2**20))
    rng = np.random.default_rng(seed)
    mode, form = (
        draw(st.sampled_from(["RGB", "L", "P", "RGBA", "1"])),
        draw(st.sampled_from(["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"])),
    )
    made = Image.fromarray(rng.integers(0, 256, (9, 7, 3), dtype=np.uint8)).convert(
        "L" if form == "JPEG" and mode in "P1RGBA" else mode
    )
    buffer = io.BytesIO()
    made.save(buffer, form)
    data = buffer.getvalue()
    whole = draw(st.booleans())
    if not whole:
        data, _ = damaged(data, rng, bytes(reversed(data)))
    with tempfile.NamedTemporaryFile(suffix=f".{form.lower()}") as file:
        file.write(data)
        file.flush()
        found = call(open_image, file.name)
    assert not whole or found is not REFUSED, f"a whole {form} of mode {mode} was refused"


def command_lines(draw):
    """Words that no command expects: exit 0 or 2, and one line of error that names the command."""
    from typer.testing import CliRunner

    from facetric.cli.main import app

    commands = [
        "evaluate",
        "report",
        "compare",
        "embed",
        "cluster",
        "duplicates",
        "search",
        "export",
        "resume",
        "train",
        "data check",
    ]
    commands += ["index add", "index update", "index remove", "index status", "cache list", "x", ""]
    options = [
        "--model",
        "--output",
        "-o",
        "--top",
        "--restarts",
        "--set",
        "--seed",
        "--device",
        "--x",
        "--checkpoint",
        "--steps",
    ]
    words = st.sampled_from(
        [*options, "nothing/here", "", "-1", "1e400", "/dev/null", ".", "\x00", "\udcff", "run.steps=x", "é", "--"]
    )
    line = [*draw(st.sampled_from(commands)).split(), *draw(st.lists(words, max_size=5))]
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        done = CliRunner().invoke(app, line)
    assert done.exception is None or isinstance(done.exception, SystemExit), f"{line}: {done.exception!r}"
    assert done.exit_code in (0, 1, 2), f"{line}: {done.exit_code}"
    assert "Traceback" not in done.output, f"{line}: {done.output}"
    assert done.exit_code == 0 or done.output.strip(), f"{line}: {done.exit_code} without a word"


def arrays(draw):
    """Files of embeddings made by hand: what is not one of ours is a ValueError of one line."""
    from facetric.embedder import Vectors

    _, _, (vectors, _), (labels, _) = batch(draw)
    names = ["vectors", "labels", "paths", "source", "sha256", "contents", "model", "about"]
    values = [vectors, labels, *ODD]
    made = {name: values[draw(st.integers(0, len(values) - 1))] for name in draw(st.lists(st.sampled_from(names), unique=True))}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.npz"
        with suppress(ValueError, TypeError):  # NumPy writes no ragged lists
            np.savez(path, **{name: np.asarray(value) for name, value in made.items()})
        if path.exists():
            assert call(Vectors.load, path) is REFUSED


def records(draw):
    """Our own records as text: a ValueError for everything that is not one."""
    from facetric.clustering import PairModel
    from facetric.evaluation import EvaluationReport
    from facetric.files import read_checksummed
    from facetric.runs import Manifest

    keys = st.text(max_size=8)
    value = draw(st.recursive(VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)))
    text = draw(st.text(max_size=40)) if draw(st.booleans()) else json.dumps(value, default=str)
    doors = [EvaluationReport.from_json, Manifest.from_json, lambda text: read_checksummed(text.encode("utf-8", "replace"))]
    call(draw(st.sampled_from(doors)), text)
    call(PairModel.from_dict, value)


READERS = (configuration, decisions, records, arrays, pictures, command_lines)
