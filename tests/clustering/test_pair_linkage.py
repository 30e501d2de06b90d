"""Clusters by learned links: laws that hold whatever was learned, and what it finds in plain data."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from clustering.clouds import blobs
from facetric.clustering import Estimate, PairLinkage, PairModel, Pile


def drawn(seed, n=60):
    return blobs(n, 2 + seed % 9, seed, noise=0.2 + 0.1 * (seed % 7))


def consistent_links(labels, seed, n_pairs=25):
    """Pairs that agree with a partition, which need not be the one that is found."""
    rng = np.random.default_rng(seed)
    truth = np.where(rng.random(len(labels)) < 0.2, rng.integers(0, 3, len(labels)), labels)
    pairs = rng.integers(0, len(labels), (n_pairs, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    same = truth[pairs[:, 0]] == truth[pairs[:, 1]]
    return pairs[same], pairs[~same]


@given(st.integers(0, 10_000), st.sampled_from([None, None, 20]))
def test_links_hold_exactly_and_nothing_is_asked_that_follows_from_them(seed, n_clusters):
    points, labels = drawn(seed)
    must, cannot = consistent_links(labels, seed)
    found = PairLinkage(n_clusters=n_clusters).fit(points, must_link=must, cannot_link=cannot)
    assert (found.labels_[must[:, 0]] == found.labels_[must[:, 1]]).all()
    assert (found.labels_[cannot[:, 0]] != found.labels_[cannot[:, 1]]).all()
    assert n_clusters in (None, found.n_clusters_)
    part = np.arange(60)
    for a, b in must:
        part[part == part[b]] = part[a]
    decided = {tuple(sorted(pair)) for pair in part[cannot].tolist()}
    asked = [tuple(sorted(pair)) for pair in part[found.questions_].tolist()]
    assert all(a != b for a, b in asked)
    assert not decided & set(asked)
    assert len(set(asked)) == len(asked)


@given(st.integers(0, 10_000))
def test_what_is_found_is_described(seed):
    points, _ = drawn(seed)
    found = PairLinkage().fit(points)
    sizes = np.bincount(found.labels_)
    assert found.n_clusters_ == len(sizes) == len(found.precision_)
    assert np.unique(found.labels_, return_index=True)[1].tolist() == sorted(np.unique(found.labels_, return_index=True)[1])
    assert (np.isnan(found.precision_) == (sizes == 1)).all()
    assert ((found.precision_ >= 0) & (found.precision_ <= 1))[sizes > 1].all()
    assert ((found.ambiguity_ >= 0) & (found.ambiguity_ <= 1)).all()
    if (sizes > 1).any():
        pairs = (sizes * (sizes - 1))[sizes > 1]
        expected = found.expected_
        assert expected.precision.value == pytest.approx(pairs @ found.precision_[sizes > 1] / pairs.sum(), abs=2e-4)
        assert 0 <= expected.precision.low <= expected.precision.value <= expected.precision.high <= 1
        assert 0 <= expected.recall <= 1
    else:
        assert found.expected_ is None


@given(st.integers(0, 10_000))
def test_the_order_of_points_changes_names_only(seed):
    points, labels = drawn(seed)
    order = np.random.default_rng(seed).permutation(60)
    must, cannot = consistent_links(labels, seed, 6)
    place = np.argsort(order)
    a = PairLinkage().fit(points, must_link=must, cannot_link=cannot)
    b = PairLinkage().fit(points[order], must_link=place[must], cannot_link=place[cannot])
    assert adjusted_rand_score(a.labels_[order], b.labels_) == 1.0
    np.testing.assert_allclose(a.precision_[a.labels_][order], b.precision_[b.labels_], atol=1e-3)
    np.testing.assert_allclose(a.ambiguity_[order], b.ambiguity_, atol=1e-3)


@given(st.integers(0, 10_000), st.integers(1, 60))
def test_a_number_of_clusters_is_kept_to(seed, n_clusters):
    assert PairLinkage(n_clusters=n_clusters).fit(drawn(seed)[0]).n_clusters_ == n_clusters


@pytest.mark.parametrize("n_classes", [4, 60])  # in lists of neighbors; beyond, parts are joined again and again
def test_a_number_of_clusters_is_kept_to_where_no_neighbor_is_of_another_class(n_classes):
    points, labels = blobs(60 * n_classes, n_classes, 0, noise=0.02)
    model, pile = PairModel.packaged(), Pile(points)
    assert len(pile.bridges(pile.listed()).first) >= n_classes - 1
    assert [PairLinkage(n_clusters=k).fit(pile).n_clusters_ for k in (1, 2, 3)] == [1, 2, 3]
    assert len(model.connected(pile, model.log_odds(pile)).log_odds) > len(pile.listed().first)
    assert adjusted_rand_score(PairLinkage(n_clusters=n_classes).fit_predict(points), labels) > 0.9


def test_a_shift_makes_clusters_finer_or_coarser():
    points, _ = blobs(150, 12, 1, noise=0.5)
    found = [PairLinkage(shift=shift).fit_predict(points) for shift in (-4.0, -1.0, 0.0, 1.0, 4.0)]
    for coarse, fine in pairwise(found):
        assert coarse.max() <= fine.max()
        assert len({*zip(fine, coarse, strict=True)}) == fine.max() + 1  # every finer cluster is within a coarser one
    assert found[0].max() < found[-1].max()


def test_a_pile_is_searched_once_and_gives_the_same():
    points, _ = blobs(150, 12, 1, noise=0.4)
    a, b = PairLinkage().fit(points), PairLinkage().fit(Pile(points))
    assert a.labels_.tolist() == b.labels_.tolist()
    np.testing.assert_allclose(a.precision_, b.precision_, atol=1e-4)
    assert PairLinkage().fit_predict(7 * points).tolist() == a.labels_.tolist()  # directions count


def test_clear_classes_are_found_whatever_their_number():
    for n_classes in (3, 10, 40):
        points, labels = blobs(12 * n_classes, n_classes, n_classes, noise=0.15, dimension=32)
        assert adjusted_rand_score(labels, PairLinkage().fit_predict(points)) > 0.95


def test_a_point_follows_those_that_it_would_be_with():
    """Of two blobs that look different one point each is joined: all others follow, and no other blob does."""
    points, labels = blobs(60, 4, 2, noise=0.1)
    first, second = (np.flatnonzero(labels == c) for c in (0, 1))
    for must in ([(first[0], second[0])], [(first[0], one) for one in (*first[1:6], *second[:6])]):
        found = PairLinkage().fit_predict(points, must_link=must)
        assert adjusted_rand_score(np.where(labels == 1, 0, labels), found) == 1.0


@pytest.mark.parametrize("points", [[[1.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]], np.full((7, 3), 0.1), np.full((90, 3), 0.1)])
def test_few_or_equal_points_are_clustered(points):
    found = PairLinkage().fit(points)
    assert len(found.labels_) == len(points)
    assert found.n_clusters_ == len(set(found.labels_))
    assert np.isfinite(found.ambiguity_).all()


def test_progress_is_reported():
    seen = []
    PairLinkage().fit(blobs(1500, 20, 1)[0], progress=lambda *step: seen.append(step))
    assert "Neighbors" in {name for name, _, _ in seen}
    assert all(0 <= done <= total for _, done, total in seen)


def test_an_estimate_reads_as_percentages():
    assert str(Estimate(0.5, 0.254, 0.751)) == "50% (25 to 75)"


@pytest.mark.parametrize(
    ("options", "links", "message"),
    [
        ({"n_clusters": 0}, {}, r"n_clusters \(0\) must be an integer between 1 and the number of points \(9\)"),
        ({"n_clusters": 10}, {}, r"n_clusters \(10\) must be an integer between 1 and"),
        ({"n_clusters": 2.0}, {}, r"n_clusters \(2.0\) must be an integer"),
        ({"n_clusters": "x"}, {}, r"n_clusters \(x\) must be an integer"),
        ({"n_clusters": 9}, {"must_link": [(0, 1)]}, "exceeds the 8 groups that must_link leaves"),
        ({"n_clusters": 2}, {"cannot_link": [(0, 1), (1, 2), (0, 2)]}, "there can be 3 to 9 clusters of these points and links"),
        ({"shift": np.nan}, {}, "shift must be a finite number of log-odds; got nan: "),
        ({"shift": "x"}, {}, "shift must be a finite number of log-odds; got 'x'"),
        ({"model": "birds"}, {}, "model must be a PairModel; got str: "),
        ({}, {"must_link": [(0, 1)], "cannot_link": [(1, 0)]}, "links contradict each other"),
        ({}, {"must_link": [(0, 9)]}, "must_link must name points between 0 and 8; got 9"),
    ],
)
def test_wrong_input_is_named(options, links, message):
    points = blobs(9, 3, 0)[0]
    with pytest.raises(ValueError, match=message):
        PairLinkage(**options).fit(points, **links)


def test_vectors_without_a_direction_are_named():
    for points, message in ((np.diag([1.0, 0.0, 1.0]), "vector 1 is zero"), (np.full((3, 2), np.nan), "NaN")):
        with pytest.raises(ValueError, match=message):
            PairLinkage().fit(points)
