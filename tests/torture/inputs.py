"""What somebody might pass: points and labels that are right, nearly right and wrong, and odd values."""

import math
import traceback
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

REFUSED = object()
ODD = (
    None,
    True,
    "x",
    "",
    "1",
    [],
    {},
    1j,
    math.nan,
    math.inf,
    -math.inf,
    -1,
    0,
    0.5,
    2.5,
    10**30,
    1e300,
    5e-324,
    b"\xff",
    (1, 2),
)
KINDS = ("bit", "bit", "bits", "cut", "zeros", "swap", "moved", "longer", "other file", "empty")
INTEGERS = st.one_of(st.integers(-2, 9), st.sampled_from(ODD))


def call(function, *arguments, **options):
    """What it gives, or REFUSED for a ValueError of one line. Anything else is a failure."""
    try:
        return function(*arguments, **options)
    except ValueError as error:
        line, where = str(error), traceback.extract_tb(error.__traceback__)[-1].filename
    foreign = "sklearn" in Path(where).parts  # its validation, by the contract of an estimator
    assert line.strip(), "an error without words"
    assert foreign or len(line.splitlines()) == 1, f"several lines: {line}"
    return REFUSED


def coordinates(draw, n, d):
    """(n, d) small integers, so that sums are exact and ties are ties."""
    return np.random.default_rng(draw(st.integers(0, 2**20))).integers(-4, 5, (n, d))


VECTOR_CHANGES = (
    "nothing", "nothing", "nothing", "nan", "inf", "huge", "tiny", "zero row", "zeros", "float16", "float64", "int8", "bool",
    "object", "text", "complex", "flat", "deep", "no rows", "no columns", "list", "ragged", "none", "fortran", "reversed",
    "read-only", "big-endian", "one row", "scalar",
)  # fmt: skip


def changed_vectors(draw, points):
    """The points as somebody might pass them, and whether they are still the same points to a naive reader."""
    change = draw(st.sampled_from(VECTOR_CHANGES))
    x = points.astype(np.float32)
    row = draw(st.integers(0, len(x) - 1))
    if change in ("nan", "inf"):
        x[row, 0] = math.nan if change == "nan" else math.inf
    if change == "zero row":
        x[row] = 0
    scaled = {"huge": x * np.float32(1e20), "tiny": x * np.float32(1e-25), "zeros": x * 0}
    if change == "read-only":
        x.flags.writeable = False
    ways = {
        **scaled, "float16": x.astype(np.float16), "float64": x.astype(float), "int8": points.astype(np.int8), "bool": x > 0,
        "object": x.astype(object), "text": x.astype(str), "complex": x.astype(complex), "flat": x.ravel(), "deep": x[None],
        "no rows": x[:0], "no columns": x[:, :0], "list": x.tolist(), "ragged": [[1.0], [1.0, 2.0]], "none": None,
        "fortran": np.asfortranarray(x), "reversed": x[::-1][::-1], "big-endian": x.astype(">f4"), "one row": x[:1],
        "scalar": 3.0,
    }  # fmt: skip
    return ways.get(change, x), change


LABEL_CHANGES = (
    "nothing", "nothing", "nothing", "text", "negative", "huge", "floats", "nan", "bool", "short", "long", "deep", "none",
    "mixed", "same", "different", "list", "uint8", "empty", "scalar",
)  # fmt: skip


def changed_labels(draw, labels):
    change = draw(st.sampled_from(LABEL_CHANGES))
    n = len(labels)
    ways = {
        "text": np.array([f"c{x}" for x in labels]), "negative": labels - 7, "huge": labels + 2**62, "floats": labels + 0.5,
        "nan": np.full(n, math.nan), "bool": labels > 0, "short": labels[:-1], "long": np.append(labels, 1),
        "deep": labels[:, None], "none": None, "mixed": [*labels[:-1].tolist(), "x"], "same": labels * 0,
        "different": np.arange(n), "list": labels.tolist(), "uint8": labels.astype(np.uint8), "empty": labels[:0], "scalar": 3,
    }  # fmt: skip
    return ways.get(change, labels), change


def batch(draw):
    """Points and labels, changed, and as they were."""
    n, d = draw(st.integers(2, 9)), draw(st.integers(1, 4))
    points = coordinates(draw, n, d)
    labels = np.random.default_rng(draw(st.integers(0, 2**20))).integers(0, draw(st.integers(1, 4)), n)
    return points, labels, changed_vectors(draw, points), changed_labels(draw, labels)


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
