"""Precision and recall of clusters, against loops over pairs and over points."""

import numpy as np
import pytest

from facetric.metrics import bcubed, pairwise, pairwise_f1
from oracles.precision_recall import bcubed_by_loops, pairwise_by_loops


@pytest.mark.parametrize("seed", range(8))
def test_both_are_what_loops_count(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    classes, clusters = rng.integers(0, 5, n), rng.integers(0, 7, n)
    assert pairwise(classes, clusters) == pytest.approx(pairwise_by_loops(classes, clusters))
    assert bcubed(classes, clusters) == pytest.approx(bcubed_by_loops(classes, clusters))


def test_f1_over_pairs_is_the_one_that_stands_among_the_scores():
    rng = np.random.default_rng(0)
    classes, clusters = rng.integers(0, 9, 400), rng.integers(0, 12, 400)
    assert pairwise(classes, clusters).f1 == pytest.approx(pairwise_f1(classes, clusters))


def test_points_that_are_alone_have_full_precision_and_no_pairs():
    assert pairwise([0, 0, 1], [0, 1, 2]) == (1.0, 0.0)
    assert pairwise([0, 0, 1], [0, 1, 2]).f1 == 0.0
    assert bcubed([0, 0, 1], [0, 1, 2]) == pytest.approx((1.0, 2 / 3))
