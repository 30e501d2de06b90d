"""Scores against scikit-learn, and the laws that all of them obey."""

import numpy as np
import pytest
import sklearn.metrics as sk
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from sklearn.metrics.cluster import contingency_matrix, pair_confusion_matrix

from facetric.metrics import ami, ari, bcubed, clustering_scores, matched_accuracy, nmi, pairwise, pairwise_f1, purity, vmeasure

ALL = [nmi, vmeasure, ami, ari, pairwise_f1, matched_accuracy]


def sklearn_pairwise_f1(a, b):
    (_, fp), (fn, tp) = pair_confusion_matrix(a, b)
    return 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else 1.0


def scipy_matched_accuracy(a, b):
    table = contingency_matrix(a, b)
    return table[linear_sum_assignment(table, maximize=True)].sum() / len(a)


REFERENCES = {
    nmi: lambda a, b: sk.normalized_mutual_info_score(a, b, average_method="geometric"),
    vmeasure: sk.v_measure_score,
    ami: sk.adjusted_mutual_info_score,
    ari: sk.adjusted_rand_score,
    pairwise_f1: sklearn_pairwise_f1,
    matched_accuracy: scipy_matched_accuracy,
}


def random_labelings(rng, largest=200):
    n = int(rng.integers(1, largest))
    return rng.integers(0, rng.integers(1, 15), n), rng.integers(0, rng.integers(1, 15), n)


@pytest.mark.parametrize("score", ALL, ids=lambda f: f.__name__)
def test_equals_scikit_learn_to_1e_12(score):
    rng = np.random.default_rng(0)
    for _ in range(150):
        a, b = random_labelings(rng)
        assert score(a, b) == pytest.approx(REFERENCES[score](a, b), abs=1e-12)


@pytest.mark.parametrize("score", ALL, ids=lambda f: f.__name__)
def test_labels_and_their_contingency_table_score_the_same(score):
    rng = np.random.default_rng(1)
    for _ in range(50):
        a, b = random_labelings(rng)
        assert score(contingency_matrix(a, b)) == pytest.approx(score(a, b), abs=1e-12)


def test_all_scores_at_once_are_the_single_ones():
    a, b = random_labelings(np.random.default_rng(2))
    found = clustering_scores(a, b)
    assert (found.nmi, found.vmeasure, found.ami, found.ari) == tuple(score(a, b) for score in (nmi, vmeasure, ami, ari))
    assert (found.pairwise_precision, found.pairwise_recall) == pairwise(a, b)
    assert (found.bcubed_precision, found.bcubed_recall, found.bcubed_f1) == (*bcubed(a, b), bcubed(a, b).f1)
    assert (found.pairwise_f1, found.purity) == (pairwise(a, b).f1, purity(a, b))
    assert clustering_scores(contingency_matrix(a, b)) == found


labelings = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=40)


@pytest.mark.parametrize("score", ALL, ids=lambda f: f.__name__)
@given(pairs=labelings, seed=st.integers(0, 1000))
def test_scores_ignore_the_names_of_labels_and_the_order_of_points(score, pairs, seed):
    a, b = np.array(pairs).T
    rng = np.random.default_rng(seed)
    names = rng.permutation(1000)[:6] * 2**40 - 7
    order = rng.permutation(len(a))
    assert score(names[a][order], names[::-1][b][order]) == pytest.approx(score(a, b), abs=1e-12)


@pytest.mark.parametrize("score", ALL, ids=lambda f: f.__name__)
@given(labels=st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_a_clustering_agrees_fully_with_itself(score, labels):
    assert score(labels, labels) == pytest.approx(1.0, abs=1e-12)


def test_one_cluster_against_several_classes_scores_zero_in_both_directions():
    assert nmi([0, 0, 0, 0], [0, 0, 1, 1]) == nmi([0, 0, 1, 1], [0, 0, 0, 0]) == 0.0
    assert nmi([3, 3], [8, 8]) == 1.0


def test_nmi_divides_by_the_geometric_mean():
    # MI = log 2, H(true) = log 2, H(pred) = log 4: NMI = 1/√2 by hand; the arithmetic mean would give 2/3.
    assert nmi([0, 0, 1, 1], [0, 1, 2, 3]) == pytest.approx(1 / np.sqrt(2))
    assert vmeasure([0, 0, 1, 1], [0, 1, 2, 3]) == pytest.approx(2 / 3)


def test_ten_thousand_clusters_need_no_dense_table():
    labels = np.arange(40_000) // 4
    assert nmi(labels, np.roll(labels, 1)) == pytest.approx(0.94, abs=0.01)
    assert ami(labels, np.roll(labels, 1)) == pytest.approx(0.594, abs=0.001)  # most of that NMI is chance


def test_ids_above_two_to_the_24_do_not_collide():
    assert nmi([2**24, 2**24 + 1, 2**53, 2**53 + 1], [0, 1, 2, 3]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], [0, 1, 2]), "2 and 3 labels"),
        (([], []), "labels_true is empty"),
        (([0.5, 1.0], [0, 1]), "labels_true must be integers"),
        (([[0, 1]], [0, 1]), "one-dimensional"),
        (([0, 1],), "two dimensions"),
        (([[0.5, 1.0]],), "integer counts"),
        (([[0, 0]],), "counts no points"),
        (([[1, -1]],), "negative"),
    ],
)
def test_bad_input_is_refused_with_the_rule_and_the_value(arguments, message):
    with pytest.raises(ValueError, match=message):
        nmi(*arguments)
