"""What answers teach about other pairs, beside dense loops, and that they help."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from clustering.clouds import blobs
from facetric.clustering import PairLinkage, PairModel, Pile
from facetric.clustering.answers import adapted, spread
from facetric.clustering.links import Links
from facetric.metrics import precision_recall


def linked(labels, rng, n_pairs):
    pairs = rng.integers(0, len(labels), (n_pairs, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    same = labels[pairs[:, 0]] == labels[pairs[:, 1]]
    return Links.parse(pairs[same], pairs[~same], len(labels))


@given(st.integers(0, 10_000))
def test_answers_spread_as_dense_matrices_say(seed):
    points, labels = blobs(50, 5, seed, noise=0.5)
    rng = np.random.default_rng(seed)
    links, scores = linked(labels, rng, 12), PairModel.packaged().log_odds(points)
    graph = np.zeros((50, 50))
    graph[scores.pairs] = expit(scores.log_odds)
    graph += graph.T
    degrees = np.sqrt(graph.sum(axis=0))
    graph /= degrees[:, None] * degrees
    reach = {}
    for group in {links.codes[i] for i in np.flatnonzero(links.linked)}:
        start = total = (links.codes == group).astype(float)
        for _ in range(8):
            total = 0.7 * graph @ total + start
            total[total < 0.01] = 0
        reach[group] = total / total.max()
    joined = [group for group in reach if (links.codes == group).sum() > 1]
    apart = {tuple(sorted(pair)) for pair in links.codes[links.cannot].tolist()}
    expected = []
    for i, j, before in zip(*scores.pairs, scores.log_odds, strict=True):
        more = sum(reach[g][i] * reach[g][j] for g in joined)
        more -= sum(reach[g][i] * reach[h][j] + reach[h][i] * reach[g][j] for g, h in apart)
        expected.append(before + 2 * more)
    np.testing.assert_allclose(spread(scores, links).log_odds, expected, atol=1e-9)


@given(st.integers(0, 10_000))
def test_differences_within_a_class_count_less_and_others_stay(seed):
    """One direction is a nuisance: it has the largest variance within a class, and answers show it."""
    rng = np.random.default_rng(seed)
    labels = np.arange(60) % 4
    points = np.eye(8)[labels] + 0.05 * rng.standard_normal((60, 8))
    points[:, 7] = rng.standard_normal(60)
    found = adapted(points.astype(np.float32), linked(labels, rng, 80))
    assert np.std(found[:, 7]) < 0.9 * np.std(points[:, 7])
    kept = [np.linalg.norm(x[labels == 0, :4].mean(axis=0) - x[labels == 1, :4].mean(axis=0)) for x in (points, found)]
    assert kept[1] > 0.8 * kept[0]


def test_without_answers_nothing_is_learned():
    points, _ = blobs(50, 5, 1, noise=0.5)
    nothing, apart = Links.parse(None, None, 50), Links.parse(None, [(0, 1)], 50)
    scores = PairModel.packaged().log_odds(points)
    assert adapted(points, nothing) is adapted(points, apart) is adapted(np.ones((50, 3), np.float32), apart) is None
    assert adapted(np.ones((50, 3), np.float32), Links.parse([(0, 1)], None, 50)) is None  # all points are equal
    assert spread(scores, nothing) is scores
    assert (spread(scores, apart).log_odds <= scores.log_odds).all()


def test_answers_say_more_than_their_own_pairs():
    """A hidden nuisance spreads every class; forty answers about half of the points group the others better."""
    rng = np.random.default_rng(0)
    labels = np.arange(160) % 8
    points = rng.standard_normal((8, 24))[labels] + 0.5 * rng.standard_normal((160, 24))
    points[:, :4] += 3 * rng.standard_normal((160, 4))
    pairs = rng.permutation(80).reshape(-1, 2)
    more = [(a, b) for a in range(0, 80, 8) for b in range(a + 1, 80) if labels[a] == labels[b]]
    same = [(a, b) for a, b in pairs.tolist() if labels[a] == labels[b]] + more
    apart = [(a, b) for a, b in pairs.tolist() if labels[a] != labels[b]]
    rest = np.arange(80, 160)
    before, after = (
        precision_recall(labels[rest], PairLinkage().fit(points, **links).labels_[rest])[0].f1
        for links in ({}, {"must_link": same, "cannot_link": apart})
    )
    assert after > before + 0.2


@pytest.mark.parametrize("n_points", [3, 40])
def test_all_points_known_to_be_together_are_one_cluster(n_points):
    points = blobs(n_points, 3, 0, noise=0.5)[0]
    found = PairLinkage().fit(Pile(points), must_link=[(0, i) for i in range(1, n_points)])
    assert found.n_clusters_ == 1
    assert len(found.questions_) == 0
