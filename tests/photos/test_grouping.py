"""Vectors to groups: constraints hold, what was joined attracts its like, questions are not asked twice."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from facetric.clustering import AverageLinkage, FacilityLocation
from facetric.photos.decisions import Constraints
from facetric.photos.grouping import grouped


def blobs(*centers, n=5, seed=0):
    rng = np.random.default_rng(seed)
    return np.concatenate([center + 0.05 * rng.normal(size=(n, 2)) for center in np.array(centers, dtype=float)]).astype(
        np.float32
    )


def test_groups_are_numbered_by_size_and_medoids_are_members_nearest_to_the_mean():
    vectors = np.concatenate([blobs((0, 0), n=3), blobs((5, 0), n=6), blobs((9, 9), n=1)])
    found = grouped(vectors, AverageLinkage(1.0), Constraints())
    assert found.labels.tolist() == [1] * 3 + [0] * 6 + [2]
    assert np.bincount(found.labels[found.labels >= 0]).tolist() == [6, 3, 1]
    for group, medoid in enumerate(found.medoids):
        own = np.flatnonzero(found.labels == group)
        mean = vectors[own].mean(axis=0)
        assert medoid == own[np.linalg.norm(vectors[own] - mean, axis=1).argmin()]


@pytest.mark.parametrize("clusterer", [AverageLinkage(1.0), FacilityLocation(opening_cost=1.0, squared=True)])
def test_a_new_point_joins_a_group_that_was_merged_from_two_far_ones(clusterer):
    """By mean distances alone it would be alone: nothing is near to both halves."""
    vectors = np.concatenate([blobs((0, 0), (6, 0), (0, 6)), [[0.1, 0.0], [6.0, 0.1]]]).astype(np.float32)
    merged = tuple((0, i) for i in range(1, 10))
    found = grouped(vectors, clusterer, Constraints(merged))
    assert set(found.labels[[*range(10), 15, 16]]) == {0}
    assert set(found.labels[10:15]) == {1}


def test_a_number_of_groups_is_kept_to_when_two_are_merged():
    found = grouped(blobs((0, 0), (6, 0), (0, 6)), FacilityLocation(3), Constraints(((0, 5),)))
    assert len(found.medoids) == 3
    assert found.labels[0] == found.labels[5]


@settings(max_examples=40)
@given(st.integers(0, 10_000))
def test_decisions_that_agree_with_some_partition_always_hold(seed):
    rng = np.random.default_rng(seed)
    vectors, truth = rng.normal(size=(24, 3)).astype(np.float32), rng.integers(0, 5, 24)
    pairs = [tuple(map(int, rng.choice(24, 2, replace=False))) for _ in range(rng.integers(0, 40))]
    must = tuple(pair for pair in pairs if truth[pair[0]] == truth[pair[1]])
    cannot = tuple(pair for pair in pairs if truth[pair[0]] != truth[pair[1]])
    used = {point for pair in pairs for point in pair}
    rejected = frozenset(set(range(24)) - used if seed % 2 else ())
    found = grouped(vectors, AverageLinkage(1.5), Constraints(must, cannot, {}, rejected))
    assert all(found.labels[a] == found.labels[b] for a, b in must)
    assert all(found.labels[a] != found.labels[b] for a, b in cannot)
    assert all((found.labels[i] < 0) == (i in rejected) for i in range(24))
    for question in found.questions:
        pair = question.first, question.second
        assert pair not in must
        assert pair not in cannot
        assert not rejected & set(pair)
        assert 0 <= question.ambiguity <= 1


def test_a_name_goes_to_the_whole_group():
    found = grouped(blobs((0, 0), (5, 0)), AverageLinkage(1.0), Constraints(names={7: "wren"}))
    assert found.names == {int(found.labels[5]): "wren"}
