"""Every Python door with inputs that are right, nearly right and wrong: the right number, or a ValueError of one line.

Numbers are computed again by the naive loops of tests/oracles/. A new door is one function and one entry of `DOORS`.
"""

import math

import numpy as np
from hypothesis import strategies as st

from oracles import batch_clustering, loss_values, medoids
from oracles.precision_recall import bcubed_by_loops, pairwise_by_loops
from oracles.retrieval import scores as retrieval_by_sorting
from torture.inputs import INTEGERS, ODD, REFUSED, batch, call, changed_labels, changed_vectors, coordinates
from torture.text_doors import READERS


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


def facility_location(draw):
    """The hinge of F + γΔ − F̃, by loops, at the medoids that the loss names."""
    import torch

    from facetric.losses import FacilityLocationLoss

    _, _, (vectors, change), (labels, _) = batch(draw)
    options = {"margin_weight": draw(st.sampled_from([0.0, 1.0, 8, *ODD])), "normalize": draw(st.booleans())}
    options |= {"inference": draw(st.sampled_from(["greedy", "stochastic", "auto", "x", None]))}
    loss = call(FacilityLocationLoss, **options)
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
    assert torch.isfinite(tensor.grad).all() or not options["normalize"], f"gradient after {change}"
    assert value.item() >= 0.0, f"a hinge below 0 after {change}"
    classes = classes_of(given)
    if len(set(classes)) == 1 or len(set(classes)) == len(classes):
        assert value.item() == 0.0
        return
    X = naive_points(vectors)
    X = [loss_values.unit(x) for x in X] if options["normalize"] else X
    gamma = len(X) / 2 if options["margin_weight"] is None else float(options["margin_weight"])
    if max(abs(v) for x in X for v in x) > 100 or gamma > 1e6 or (options["normalize"] and gamma):
        return  # beyond float32; or points at equal distances, where rounding decides who is whose
    distances = [[loss_values.distance(x, y) for y in X] for x in X]
    found = batch_clustering.objective(distances, classes, gamma, loss.last.medoids.tolist())
    expected = max(0.0, found - batch_clustering.oracle_score(distances, classes))
    assert math.isclose(value.item(), expected, rel_tol=1e-3, abs_tol=1e-3), f"{value.item()}, not {expected}, after {change}"


def _torch_takes(array):
    return array.dtype.kind in "fiub" and array.dtype.isnative and array.flags.writeable and all(s >= 0 for s in array.strides)


def solver(draw):
    from facetric.losses.solver import ClusteringProblem, solve

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
    from facetric.clustering import AverageLinkage, FacilityLocation, PairLinkage

    _, _, (vectors, change), _ = batch(draw)
    if draw(st.booleans()):
        shift, n_clusters = draw(st.sampled_from([0.0, -2.0, 1, *ODD])), draw(st.sampled_from([None, None, 2, 3, *ODD]))
        found = call(lambda: PairLinkage(shift=shift, n_clusters=n_clusters).fit(vectors))
        assert found is REFUSED or found.labels_.max() + 1 == found.n_clusters_ == (n_clusters or found.n_clusters_)
        return
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
        assert all(0 <= value <= 1 for value in report.comparable_scores().values())


def pair_model(draw):
    from facetric.clustering import calibrate

    n = draw(st.integers(2, 30))
    points = coordinates(draw, n, 3)
    vectors, _ = changed_vectors(draw, points)
    labels, _ = changed_labels(draw, np.arange(n) % draw(st.integers(1, 8)))
    found = call(calibrate, vectors, labels)
    assert found is REFUSED or math.isfinite(found.error)


def sampler(draw):
    from facetric.losses import ClassBalancedBatches

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


DOORS = (
    losses, facility_location, solver, agreement, retrieval, clustering, evaluation, pair_model, sampler, *READERS,
)  # fmt: skip
