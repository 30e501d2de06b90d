"""Every Python door with inputs that are right, nearly right and wrong: the right number, or a ValueError of one line.

Numbers are computed again by the naive loops of tests/oracles/. A new door is one function and one entry of `DOORS`.
"""

import json
import math
import tomllib
import traceback
from contextlib import suppress
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from oracles import batch_clustering, loss_values, medoids
from oracles.precision_recall import bcubed_by_loops, pairwise_by_loops
from oracles.retrieval import scores as retrieval_by_sorting

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


def naive_points(given):
    return np.asarray(given, dtype=np.float64).tolist()


def classes_of(given):
    return [str(x) for x in np.asarray(given).tolist()]


def losses(draw):
    import torch

    from facetric.losses import LOSSES

    _, _, (vectors, change), (labels, _) = batch(draw)
    name = draw(st.sampled_from(["triplet", "triplet_semihard", "lifted_structure", "npairs", "contrastive", "affinity"]))
    normalize = draw(st.booleans())
    margin = draw(st.sampled_from([0.0, 0.2, 1.0, 1, *ODD])) if name != "affinity" else None
    key = {"affinity": None, "npairs": "norm_weight"}.get(name, "margin")
    loss = call(LOSSES[name], **({key: margin} if key else {}), normalize=normalize)
    if loss is REFUSED:
        return
    tensor = torch.from_numpy(vectors) if isinstance(vectors, np.ndarray) and _torch_takes(vectors) else vectors
    if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
        tensor.requires_grad_()
    given = torch.from_numpy(labels) if isinstance(labels, np.ndarray) and _torch_takes(labels) else labels
    value = call(loss, tensor, given)
    if value is REFUSED:
        return
    value.backward()
    assert torch.isfinite(tensor.grad).all() or not normalize, f"gradient of {name} after {change}"
    classes = classes_of(given)
    if not loss_values.ordered_positive_pairs(classes) or len(set(classes)) == 1:
        assert value.item() == 0.0
        return
    X = naive_points(vectors)
    X = [loss_values.unit(x) for x in X] if normalize else X
    if max(abs(v) for x in X for v in x) > 100:
        return  # sums of exponentials and squares that the plain loops cannot hold either
    expected = getattr(loss_values, name)(X, classes, *([float(margin)] if key else []))
    assert math.isclose(value.item(), expected, rel_tol=2e-3, abs_tol=2e-4), (
        f"{name} after {change}: {value.item()}, not {expected}"
    )


def _torch_takes(array):
    return array.dtype.kind in "fiub" and array.dtype.isnative and array.flags.writeable and all(s >= 0 for s in array.strides)


def solver(draw):
    from facetric.solver import ClusteringProblem, solve

    points, _, (vectors, change), (labels, _) = batch(draw)
    distances = np.abs(points[:, None] - points[None]).sum(-1).astype(float)
    which = draw(st.sampled_from(["points", "matrix", "changed matrix"]))
    gamma = draw(st.sampled_from([0.0, 1.0, 8, *ODD]))
    if which == "points":
        problem = call(ClusteringProblem.from_points, vectors, labels, gamma)
    else:
        distances, _ = changed_vectors(draw, distances) if which == "changed matrix" else (distances, None)
        problem = call(ClusteringProblem, distances, labels, gamma)
    if problem is REFUSED:
        return
    options = {"inference": draw(st.sampled_from(["greedy", "stochastic", "random", "auto", "x", None]))}
    options |= {"refine": draw(st.sampled_from(["pam", "local_search", None, "x"])), "max_sweeps": draw(INTEGERS)}
    found = call(solve, problem, **options)
    if found is REFUSED or change == "huge":
        return
    matrix, classes = problem.distances.astype(float).tolist(), classes_of(problem.labels)
    S = found.medoids.tolist()
    assert len(set(S)) == len(S) == len(set(classes))
    expected = batch_clustering.objective(matrix, classes, problem.margin_weight, S)
    assert math.isclose(found.objective, expected, rel_tol=1e-5, abs_tol=1e-5), (
        f"{found.objective}, not {expected}, after {change}"
    )


def agreement(draw):
    from facetric import metrics

    _, labels, _, (changed, _) = batch(draw)
    other = np.random.default_rng(draw(st.integers(0, 2**20))).integers(0, 3, len(labels))
    name = draw(
        st.sampled_from(["nmi", "vmeasure", "ami", "ari", "purity", "pairwise", "bcubed", "pairwise_f1", "matched_accuracy"])
    )
    found = call(getattr(metrics, name), changed, other)
    if found is REFUSED:
        return
    classes, clusters = classes_of(changed), other.tolist()
    assert len(classes) == len(clusters)
    if name == "nmi":
        assert math.isclose(found, min(max(batch_clustering.score_nmi(clusters, classes), 0.0), 1.0), abs_tol=1e-9)
    elif name == "purity":
        counts = [
            max(sum(c == k and y == z for c, y in zip(clusters, classes, strict=True)) for z in classes) for k in set(clusters)
        ]
        assert math.isclose(found, sum(counts) / len(classes))
    elif name in ("pairwise", "bcubed"):
        expected = (pairwise_by_loops if name == "pairwise" else bcubed_by_loops)(classes, clusters)
        assert np.allclose((found.precision, found.recall), expected)
    else:
        assert -1 <= found <= 1


def retrieval(draw):
    from facetric.metrics import retrieval as door

    _, _, (vectors, change), (labels, _) = batch(draw)
    metric = draw(st.sampled_from(["cosine", "euclidean", "x", None]))
    ks = draw(st.one_of(st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True), st.lists(INTEGERS, max_size=2)))
    found = call(door, vectors, labels, ks=ks, metric=metric)
    if found is REFUSED or change in ("huge", "tiny", "bool"):
        return
    points, classes = np.asarray(vectors, dtype=float), classes_of(labels)
    expected = retrieval_by_sorting(points.astype(int), classes, [int(k) for k in ks], metric)
    if metric == "euclidean" and expected is not None:
        assert found.map_at_r is None or math.isclose(found.map_at_r, expected[2], abs_tol=1e-9)
        assert {k: round(v, 9) for k, v in found.recall_at_k.items()} == {k: round(v, 9) for k, v in expected[0].items()}


def clustering(draw):
    from facetric.clustering import AverageLinkage, FacilityLocation

    _, _, (vectors, change), _ = batch(draw)
    if draw(st.booleans()):
        threshold = draw(st.sampled_from([0.5, 3.0, 1, *ODD]))
        found = call(lambda: AverageLinkage(threshold).fit(vectors))
        assert found is REFUSED or len(found.labels_) == len(vectors)
        return
    options = {"n_clusters": draw(INTEGERS)} if draw(st.booleans()) else {"opening_cost": draw(st.sampled_from([0.5, 3.0, *ODD]))}
    found = call(lambda: FacilityLocation(**options, centers=draw(st.sampled_from(["medoids", None, "x"]))).fit(vectors))
    if found is REFUSED or found.centers != "medoids" or change == "huge":
        return
    X = naive_points(vectors)
    cost = [[loss_values.distance(x, y) for y in X] for x in X]
    expected = medoids.objective(cost, found.medoid_indices_.tolist(), float(options.get("opening_cost", 0.0)))
    assert math.isclose(found.objective_, expected, rel_tol=1e-4, abs_tol=1e-4), (
        f"{found.objective_}, not {expected}, after {change}"
    )


def evaluation(draw):
    from facetric.evaluation import evaluate

    _, _, (vectors, _), (labels, _) = batch(draw)
    restarts = st.sampled_from([0, 1, 2, -1, 1.5, None, True, "x", math.nan, [1]])  # as many as asked for: no large numbers
    options = {"n_restarts": draw(restarts), "seed": draw(st.sampled_from([0, 1, *ODD]))}
    report = call(evaluate, vectors, labels, ks=(1,), facility=draw(st.booleans()), **options)
    if report is not REFUSED:
        assert 0 <= report.nmi <= 1
        assert all(0 <= value <= 1 for value in report.recall_at_k.values())


def calibration(draw):
    from facetric.clustering import calibrate

    n = draw(st.integers(2, 30))
    points = coordinates(draw, n, 3)
    vectors, _ = changed_vectors(draw, points)
    labels, _ = changed_labels(draw, np.arange(n) % draw(st.integers(1, 8)))
    found = call(calibrate, vectors, labels, n_repeats=1)
    assert found is REFUSED or math.isfinite(found.threshold)


def sampler(draw):
    from facetric.data import ClassBalancedBatches

    labels, _ = changed_labels(draw, np.arange(24) % 6)
    options = {
        key: draw(INTEGERS)
        for key in ("batch_size", "images_per_class", "n_batches", "seed", "class_ratio")
        if draw(st.booleans())
    }
    found = call(ClassBalancedBatches, labels, **{"batch_size": 8, "n_batches": 2, "class_ratio": 0.25, **options})
    if found is not REFUSED:
        for chosen in call(lambda: [rows for _, rows in zip(range(3), found, strict=False)]):
            assert len(chosen) == found.batch_size
            assert all(0 <= row < len(labels) for row in np.asarray(chosen).ravel().tolist())


KEYS = st.sampled_from(
    """run.steps run.seed run.name run.threads run.validate_every data.name data.size data.pad data.options data.root model.dim
    model.backbone model.weights loss.name loss.margin loss.margin_weight loss.options batches.size batches.class_ratio
    optimizer.name optimizer.head_lr optimizer.warmup_steps run.x x.y run""".split()  # noqa: SIM905
)
VALUES = st.one_of(
    st.sampled_from(ODD), st.integers(), st.floats(), st.text(max_size=6), st.dictionaries(st.text(max_size=3), st.integers())
)


def configuration(draw):
    from facetric.config.config_file import apply_override, parse_config, to_toml

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
    from facetric.groups.decisions import Decisions

    photo = st.fixed_dictionaries({"content": VALUES, "path": VALUES}) | VALUES
    kinds = st.sampled_from(["same", "different", "name", "reject", "x", 3])
    row = st.fixed_dictionaries({"do": kinds, "photos": st.lists(INTEGERS, max_size=4), "name": VALUES})
    record = {"photos": st.lists(photo, max_size=4), "decisions": st.lists(row, max_size=4)}
    record = st.fixed_dictionaries({"format": st.just("facetric decisions 1"), **record})
    found = call(Decisions.from_dict, draw(record | VALUES))
    if found is not REFUSED:
        call(found.constraints, ["a", "b"], {"a.jpg": "a"})


def records(draw):
    """Our own records as text: a ValueError for everything that is not one."""
    from facetric.clustering import Calibration
    from facetric.evaluation import EvaluationReport
    from facetric.files import unsealed
    from facetric.runs import Manifest

    keys = st.text(max_size=8)
    value = draw(st.recursive(VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)))
    text = draw(st.text(max_size=40)) if draw(st.booleans()) else json.dumps(value, default=str)
    doors = [EvaluationReport.from_json, Manifest.from_json, lambda text: unsealed(text.encode("utf-8", "replace"))]
    call(draw(st.sampled_from(doors)), text)
    with suppress(TypeError, KeyError, AttributeError):  # its readers turn these into a line
        call(Calibration.from_dict, value)


DOORS = (losses, solver, agreement, retrieval, clustering, evaluation, calibration, sampler, configuration, decisions, records)
