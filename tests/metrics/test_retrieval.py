"""Retrieval scores against sorting everything, against pytorch-metric-learning, and the laws they must keep."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

from facetric.metrics import map_at_r, r_precision, recall_at_k, retrieval
from facetric.metrics.neighbors import rank_positives
from facetric.metrics.retrieval import retrieval_by_class
from oracles import retrieval as oracle

METRICS = ("cosine", "euclidean")


def clustered(rng, n=400, d=8, n_classes=40, noise=0.8):
    labels = rng.integers(0, n_classes, n)
    return (rng.normal(size=(n_classes, d))[labels] + noise * rng.normal(size=(n, d))).astype(np.float32), labels


def cosine_grid(rng, n):
    """Vectors whose cosines are the same number in float32 whenever they are equal: ±1 in four of eight coordinates or in one."""
    vectors = np.zeros((n, 8))
    for row in vectors:
        row[rng.permutation(8)[: rng.choice([1, 4])]] = rng.choice([-1, 1])
    return vectors


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("metric", METRICS)
def test_scores_equal_sorting_everything_with_duplicates_and_ties(metric, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(6, 60))
    vectors = cosine_grid(rng, n) if metric == "cosine" else rng.integers(0, 3, size=(n, 3)).astype(float)
    labels = rng.integers(0, int(rng.integers(2, 9)), n)
    labels[:3] = [0, 1, 1]
    found = retrieval(vectors, labels, ks=(1, 2, 5), metric=metric)
    recall, precision, average_precision, n_left_out = oracle.scores(vectors, labels, (1, 2, 5), metric)
    assert found.recall_at_k == pytest.approx(recall, abs=1e-12)
    assert found.precision_at_1 == found.recall_at_k[1]
    assert found.r_precision == pytest.approx(precision, abs=1e-12)
    assert found.map_at_r == pytest.approx(average_precision, abs=1e-12)
    assert (found.n_left_out, found.n_queries) == (n_left_out, n - n_left_out)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("overlap", [False, True])
def test_queries_search_the_gallery_and_never_find_themselves(seed, overlap):
    rng = np.random.default_rng(seed)
    vectors = rng.integers(0, 4, size=(50, 2)).astype(float)
    labels = rng.integers(0, 6, 50)
    queries = np.sort(rng.permutation(50)[:20])
    gallery = np.sort(rng.permutation(50)[:30]) if overlap else np.setdiff1d(np.arange(50), queries)
    found = retrieval(vectors, labels, ks=(1, 4), metric="euclidean", query=queries, gallery=gallery if overlap else None)
    recall, precision, average_precision, n_left_out = oracle.scores(vectors, labels, (1, 4), "euclidean", queries, gallery)
    assert found.recall_at_k == pytest.approx(recall)
    assert (found.r_precision, found.map_at_r) == pytest.approx((precision, average_precision))
    assert (found.n_left_out, found.n_gallery) == (n_left_out, len(gallery))


def test_a_mask_and_row_numbers_are_the_same_split():
    vectors, labels = clustered(np.random.default_rng(0))
    mask = np.arange(len(labels)) % 3 == 0
    assert retrieval(vectors, labels, query=mask) == retrieval(vectors, labels, query=np.flatnonzero(mask))
    assert retrieval(vectors, labels, query=mask) == retrieval(vectors, labels, gallery=~mask)


@given(
    seed=st.integers(0, 10_000),
    block_size=st.integers(1, 70),
    tile_size=st.integers(1, 70),
    metric=st.sampled_from(METRICS),
    ties=st.booleans(),
)
def test_blocks_and_tiles_change_nothing(seed, block_size, tile_size, metric, ties):
    rng = np.random.default_rng(seed)
    n, d = 64, 40
    vectors = rng.normal(size=(n, d))
    if ties:  # duplicates, and duplicates but for the last bit: what rounding of a product would decide
        vectors = vectors[rng.integers(0, 6, n)] * np.float32(1) * (1 + rng.integers(0, 2, (n, 1)) * 2.0**-24)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors.astype(np.float32)
    classes = rng.integers(0, 7, n)
    everything = np.arange(n)
    whole = rank_positives(vectors, classes, everything, everything, metric=metric, max_rank=20)
    parts = rank_positives(
        vectors, classes, everything, everything, metric=metric, max_rank=20, block_size=block_size, tile_size=tile_size
    )
    for name in ("n_positives", "first_rank", "r_precision", "average_precision"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))


def test_a_smaller_memory_budget_changes_nothing():
    vectors, labels = clustered(np.random.default_rng(3), n=900)
    assert retrieval(vectors, labels, memory_gib=1e-6) == retrieval(vectors, labels)


def test_near_ties_are_decided_in_float64():
    # 1000 rows whose cosines to the query differ by less than float32 can see in a product; only one order is right.
    rng = np.random.default_rng(0)
    base = rng.normal(size=200)
    vectors = np.vstack([base, base + 1e-6 * rng.normal(size=(1000, 200))]).astype(np.float32)
    labels = np.arange(1001) % 7
    units = (
        (vectors.astype(float) / np.linalg.norm(vectors.astype(float), axis=1, keepdims=True)).astype(np.float32).astype(float)
    )
    order = np.argsort(-(units[1:] @ units[0]), kind="stable") + 1
    first_rank = 1 + int(np.argmax(labels[order] == labels[0]))
    found = retrieval(vectors, labels, ks=tuple(range(1, 50)), query=[0])
    assert [found.recall_at_k[k] for k in range(1, 50)] == [float(k >= first_rank) for k in range(1, 50)]


def test_duplicates_of_the_query_are_results_and_the_query_is_not():
    # Dropping the first result instead of the query itself would drop the duplicate of the other class here.
    vectors = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.1, 1.0]])
    assert recall_at_k(vectors, [0, 1, 0, 1], ks=(1, 2, 3)) == {1: 0.0, 2: 0.5, 3: 1.0}


def test_equal_distances_go_to_the_lowest_index():
    vectors = np.array([[0.0], [1.0], [-1.0], [9.0], [9.5]])
    assert retrieval(vectors, [0, 0, 1, 1, 0], ks=(1,), metric="euclidean", query=[0]).precision_at_1 == 1.0
    assert retrieval(vectors, [0, 1, 0, 1, 0], ks=(1,), metric="euclidean", query=[0]).precision_at_1 == 0.0


@pytest.mark.parametrize("metric", METRICS)
def test_scores_equal_pytorch_metric_learning_where_there_are_no_ties(metric):
    vectors, labels = clustered(np.random.default_rng(1), n=700)
    if metric == "cosine":
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    theirs = AccuracyCalculator(
        include=("precision_at_1", "r_precision", "mean_average_precision_at_r"), k="max_bin_count", device=torch.device("cpu")
    ).get_accuracy(torch.from_numpy(vectors), torch.from_numpy(labels))
    assert retrieval(vectors, labels, metric=metric).precision_at_1 == pytest.approx(theirs["precision_at_1"], abs=1e-9)
    assert r_precision(vectors, labels, metric=metric) == pytest.approx(theirs["r_precision"], abs=1e-9)
    assert map_at_r(vectors, labels, metric=metric) == pytest.approx(theirs["mean_average_precision_at_r"], abs=1e-9)


def test_queries_without_a_positive_are_left_out_as_pytorch_metric_learning_does():
    vectors, labels = clustered(np.random.default_rng(2), n=120)
    labels[:5] = 1000 + np.arange(5)
    theirs = AccuracyCalculator(include=("precision_at_1",), k=1, device=torch.device("cpu")).get_accuracy(
        torch.from_numpy(vectors), torch.from_numpy(labels)
    )
    found = retrieval(vectors, labels, metric="euclidean")
    assert found.n_left_out >= 5
    assert found.precision_at_1 == pytest.approx(theirs["precision_at_1"], abs=1e-9)


def test_far_from_the_origin_neighbors_are_still_exact():
    labels = np.arange(400) % 8
    noise = 0.002 * np.random.default_rng(0).normal(size=(400, 64))
    vectors = (1000 + 0.02 * labels[:, None] + noise).astype(np.float32)  # ‖x‖² + ‖y‖² − 2x·y in float32 is off by 4 here
    assert r_precision(vectors, labels, metric="euclidean") == 1.0


def test_ids_above_two_to_the_53_do_not_collide():
    vectors = np.array([[0.0], [0.1], [5.0], [5.1]])
    labels = np.array([2**53, 2**53 + 1, 2**53, 2**53 + 1])
    assert recall_at_k(vectors, labels, ks=(1, 3), metric="euclidean") == {1: 0.0, 3: 1.0}
    assert recall_at_k(vectors, labels - 2**53 + 2**24, ks=(1, 3), metric="euclidean") == {1: 0.0, 3: 1.0}


def test_huge_and_tiny_vectors_keep_their_order():
    vectors, labels = clustered(np.random.default_rng(5))
    expected = retrieval(vectors, labels, metric="euclidean")
    for scale in (2.0**120, 2.0**-120):
        assert retrieval(vectors.astype(np.float64) * scale, labels, metric="euclidean") == expected


@pytest.mark.parametrize(
    ("vectors", "labels", "options", "message"),
    [
        (np.ones((0, 3)), [], {}, r"got \(0, 3\)"),
        (np.ones((4, 0)), [0, 0, 1, 1], {}, r"got \(4, 0\)"),
        (np.ones(4), [0, 0, 1, 1], {}, r"shape \(n, d\)"),
        ([["a"], ["b"]], [0, 1], {}, "numbers"),
        ([[1.0], [np.nan], [2.0]], [0, 0, 1], {}, "row 1 is not .1 of 3"),
        ([[1.0], [np.inf], [2.0]], [0, 0, 1], {}, "row 1"),
        (np.ones((3, 2)), [0, 1], {}, "2 labels for 3 vectors"),
        (np.ones((2, 2)), [0.0, 1.0], {}, "must be integers"),
        (np.ones((3, 2)), [5, 5, 5], {}, "one class"),
        (np.ones((3, 2)), [0, 1, 2], {"ks": (1,)}, "none of the 3 queries"),
        (np.ones((3, 2)), [0, 0, 1], {"ks": (3,)}, r"K \(3\) exceeds the 2 images"),
        (np.ones((3, 2)), [0, 0, 1], {"ks": (0,)}, "at least 1"),
        (np.ones((3, 2)), [0, 0, 1], {"ks": (1.5,)}, "whole number"),
        (np.ones((3, 2)), [0, 0, 1], {"ks": ()}, "ks is empty"),
        (np.ones((3, 2)), [0, 0, 1], {"metric": "cosin"}, "cosine, euclidean"),
        (np.zeros((3, 2)), [0, 0, 1], {"ks": (1,)}, "vector 0 is zero"),
        (np.ones((3, 2)), [0, 0, 1], {"ks": (1,), "query": [3]}, "between 0 and 2"),
        (np.ones((3, 2)), [0, 0, 1], {"ks": (1,), "query": [0.5]}, "row numbers"),
        (np.ones((3, 2)), [0, 0, 1], {"ks": (1,), "query": [0, 1, 2]}, "0 for the gallery"),
        (np.ones((3, 2)), [0, 0, 1], {"ks": (1,), "memory_gib": 0}, "memory_gib"),
    ],
)
def test_bad_input_is_refused_with_the_rule_and_the_value(vectors, labels, options, message):
    with pytest.raises(ValueError, match=message):
        retrieval(vectors, labels, **options)


def test_a_tensor_with_a_gradient_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match="detach"):
        retrieval(torch.ones(3, 2, requires_grad=True), [0, 0, 1])


@pytest.mark.parametrize("metric", METRICS)
def test_the_scores_of_a_class_are_those_of_its_images_as_queries(metric):
    rng = np.random.default_rng(3)
    vectors = rng.integers(-4, 5, size=(30, 5)) + np.array([9, 0, 0, 0, 0])  # never of length 0
    labels = rng.choice([2, 3, 7, 8], size=30)
    labels[0] = 99  # a class of one image
    found = retrieval_by_class(vectors, labels, metric=metric)
    assert found.classes.tolist() == [2, 3, 7, 8]
    for i, label in enumerate(found.classes):
        recall, _, average_precision, _ = oracle.scores(vectors, labels, (1,), metric, queries=np.flatnonzero(labels == label))
        assert found.recall_at_1[i] == pytest.approx(recall[1])
        assert found.map_at_r[i] == pytest.approx(average_precision)
