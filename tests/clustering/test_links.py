"""Corrections: pairs that must and pairs that must not share a cluster."""

import numpy as np
import pytest

from clustering.clouds import blobs, distances
from facetric.clustering import FacilityLocation
from facetric.clustering.points import Points
from oracles import medoids as oracle

OPTIONS = [
    {"n_clusters": 8},
    {"n_clusters": 8, "centers": "medoids"},
    {"opening_cost": 1.2},
    {"n_clusters": 8, "metric": "precomputed"},
    {"opening_cost": 1.2, "metric": "precomputed"},
]


def fitted(options, points, **links):
    X = distances(points) if options.get("metric") == "precomputed" else points
    return FacilityLocation(**options).fit(X, **links)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_links_are_respected(options, seed):
    points, _ = blobs(80, 8, seed, noise=0.4)
    rng = np.random.default_rng(seed)
    plain = fitted(options, points).labels_
    together = np.array([(a, b) for a, b in rng.integers(0, 80, (400, 2)) if a != b and plain[a] == plain[b]])[:12]
    apart = np.array([(a, b) for a, b in rng.integers(0, 80, (200, 2)) if plain[a] != plain[b]])[:5]
    # Corrections contradict what was found: separate the first, join the second.
    groups = {frozenset(pair) for pair in apart.tolist()}
    cannot = [pair for pair in together.tolist() if not set(pair) & set().union(*groups)]
    found = fitted(options, points, must_link=apart, cannot_link=cannot)
    assert len(cannot) > 2
    assert all(found.labels_[a] == found.labels_[b] for a, b in apart)
    assert all(found.labels_[a] != found.labels_[b] for a, b in cannot)
    assert set(found.labels_.tolist()) == set(range(len(found.medoid_indices_)))
    assert found.labels_[found.medoid_indices_].tolist() == list(range(len(found.medoid_indices_))) or "centers" not in options
    assert ((found.ambiguity_ >= 0) & (found.ambiguity_ <= 1)).all()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_links_that_hold_already_change_little(options):
    points, labels = blobs(80, 8, 1, noise=0.1)
    plain = fitted(options, points)
    inside = [(np.flatnonzero(labels == c)[0], np.flatnonzero(labels == c)[1]) for c in range(8)]
    across = [(np.flatnonzero(labels == c)[0], np.flatnonzero(labels == (c + 1) % 8)[0]) for c in range(8)]
    linked = fitted(options, points, must_link=inside, cannot_link=across)
    np.testing.assert_array_equal(linked.labels_[:, None] == linked.labels_, plain.labels_[:, None] == plain.labels_)


def test_linked_points_cost_what_they_cost_together():
    points, _ = blobs(9, 3, 2, noise=0.5)
    cost = distances(points)
    found = FacilityLocation(opening_cost=0.8).fit(points, must_link=[(0, 5), (5, 7)])
    group = {0, 5, 7}
    singles = [[i] for i in range(9) if i not in group] + [sorted(group)]
    representative = min(sorted(group), key=lambda j: sum(cost[i][j] for i in group))
    centers = [g[0] if len(g) == 1 else representative for g in singles]
    table = [[sum(cost[i][j] for i in g) for j in centers] for g in singles]
    best = oracle.best_of_all(table, opening_cost=0.8)
    assert best - 1e-6 <= found.objective_ <= 1.1 * best


def test_a_split_takes_the_neighbors_along():
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(0, 0.1, (20, 2)), rng.normal((1.0, 0.0), 0.1, (20, 2))])
    merged = FacilityLocation(opening_cost=25.0).fit(points)
    assert len(merged.medoid_indices_) == 1
    split = FacilityLocation(opening_cost=25.0).fit(points, cannot_link=[(3, 30)])
    assert len(split.medoid_indices_) == 2
    assert len(set(split.labels_[:20])) == len(set(split.labels_[20:])) == 1


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ({"must_link": [(0, 1), (1, 2)], "cannot_link": [(0, 2)]}, "cannot_link separates 0 and 2, but must_link joins them"),
        ({"cannot_link": [(4, 4)]}, "cannot_link separates 4 and 4, but a point cannot be apart from itself"),
        ({"must_link": [(0, 99)]}, "must_link must name points between 0 and 79; got 99"),
        ({"cannot_link": [(-1, 3)]}, "cannot_link must name points between 0 and 79; got -1"),
        ({"must_link": [(0, 1, 2)]}, "must_link must be pairs of point indices"),
        ({"must_link": [(0.5, 1.0)]}, "must_link must be pairs of point indices"),
        ({"must_link": [(i, i + 1) for i in range(79)]}, r"n_clusters \(8\) exceeds the 1 groups that must_link leaves"),
        ({"cannot_link": [(i, j) for i in range(9) for j in range(i)]}, "8 clusters cannot keep all cannot_link pairs apart"),
    ],
)
def test_links_that_cannot_hold_are_named(links, message):
    points, _ = blobs(80, 8, 0)
    for options in ({"n_clusters": 8}, {"n_clusters": 8, "centers": "medoids"}):
        with pytest.raises(ValueError, match=message):
            FacilityLocation(**options).fit(points, **links)


def test_with_an_opening_cost_any_number_of_points_can_be_kept_apart():
    points, _ = blobs(80, 8, 0)
    cannot = [(i, j) for i in range(20) for j in range(i)]
    labels = FacilityLocation(opening_cost=50.0).fit(points, cannot_link=cannot).labels_
    assert len(set(labels[:20])) == 20


def test_links_do_not_change_what_a_points_object_holds():
    points, _ = blobs(40, 4, 0)
    matrix = distances(points)
    before = matrix.copy()
    FacilityLocation(opening_cost=1.0, metric="precomputed").fit(matrix, cannot_link=[(0, 1)], must_link=[(2, 3)])
    np.testing.assert_array_equal(matrix, before)
    assert Points.of_matrix(matrix, np.ones(40), False).costs is not matrix
