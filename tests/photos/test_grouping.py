"""Vectors to groups: constraints hold, what was joined attracts its like, questions are not asked twice."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from facetric.clustering import PairLinkage
from facetric.photos import Decisions
from facetric.photos.decisions import Constraints, joined
from facetric.photos.grouping import grouped
from facetric.photos.groups import group_photos


def blobs(*sizes, seed=0, noise=0.1):
    """So many points around directions of their own."""
    rng = np.random.default_rng(seed)
    points = np.repeat(rng.normal(size=(len(sizes), 8)), sizes, axis=0)
    return (points + noise * rng.normal(size=points.shape)).astype(np.float32)


def test_groups_are_numbered_by_size_and_medoids_are_members_nearest_to_the_mean():
    vectors = blobs(7, 9, 8)
    found = grouped(vectors, PairLinkage(), Constraints())
    assert found.labels.tolist() == [2] * 7 + [0] * 9 + [1] * 8
    for group, medoid in enumerate(found.medoids):
        own = np.flatnonzero(found.labels == group)
        mean = vectors[own].mean(axis=0)
        assert medoid == own[np.linalg.norm(vectors[own] - mean, axis=1).argmin()]
    plain = PairLinkage().fit(vectors)
    assert found.precision.tolist() == plain.precision_[plain.labels_[found.medoids]].tolist()
    assert found.expected == plain.expected_


def test_a_new_point_joins_a_group_that_was_merged_from_two_far_ones():
    """By mean log-odds alone it would be alone: nothing is near to both halves."""
    vectors = blobs(6, 6, 6)[[*range(5), *range(6, 11), *range(12, 17), 5, 11]]
    merged = tuple((0, i) for i in range(1, 10))
    found = grouped(vectors, PairLinkage(), Constraints(merged))
    assert set(found.labels[[*range(10), 15, 16]]) == {0}
    assert set(found.labels[10:15]) == {1}


def test_a_number_of_groups_is_kept_to_when_two_are_merged():
    found = grouped(blobs(5, 5, 5), PairLinkage(n_clusters=3), Constraints(((0, 5),)))
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
    found = grouped(vectors, PairLinkage(), Constraints(must, cannot, {}, rejected))
    assert all(found.labels[a] == found.labels[b] for a, b in must)
    assert all(found.labels[a] != found.labels[b] for a, b in cannot)
    assert all((found.labels[i] < 0) == (i in rejected) for i in range(24))
    together = joined(must, 24)
    apart = {tuple(sorted((int(together[a]), int(together[b])))) for a, b in cannot}
    for pair in found.questions.tolist():
        a, b = sorted(together[pair].tolist())
        assert a != b
        assert (a, b) not in apart
        assert not rejected & set(pair)


def test_a_name_goes_to_the_whole_group():
    found = grouped(blobs(5, 5), PairLinkage(), Constraints(names={7: "wren"}))
    assert found.names == {int(found.labels[5]): "wren"}


def test_where_all_are_rejected_there_is_no_group():
    found = grouped(blobs(3), PairLinkage(), Constraints(rejected=frozenset(range(3))))
    assert (found.labels.tolist(), len(found.medoids), len(found.questions), found.expected) == ([-1] * 3, 0, 0, None)


def test_words_say_how_sure_a_group_is():
    photos = {Path(f"/photos/{i}.jpg"): bytes([i]) for i in range(13)}
    groups = group_photos(Path("/photos"), photos, blobs(6, 6, 1), PairLinkage(), "", decisions=Decisions())
    assert " in 100 pairs of photos in one group are of one kind; " in groups.summary[1]
    groups = replace(groups, precision=np.array([0.93, 0.2, np.nan]))
    words = [groups.sureness(group) for group in range(3)]
    assert words == ["almost certainly one kind", "probably several kinds: look here first", ""]
