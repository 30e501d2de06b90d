"""Features of pairs, the regression on them, the tree of merges and its cut: each against loops over everything."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from clustering.clouds import blobs
from facetric.clustering import Pile
from facetric.clustering.cut import best_cut, cut_into
from facetric.clustering.linear import Examples, Linear
from facetric.clustering.links import Links
from facetric.clustering.pair_tree import CLIP, MERGE_FEATURES, PairTree, pair_tree
from facetric.clustering.pile import PAIR_FEATURES, Pairs
from oracles import pairs as oracle


def all_pairs(n):
    return Pairs(*(ends.astype(np.int32) for ends in np.triu_indices(n, 1)))


def listed_pairs(pairs):
    return list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))


@pytest.mark.parametrize("n", [13, 30, 75])
def test_features_of_pairs_are_those_of_plain_loops(n):
    points = blobs(n, min(n, 6), n, noise=0.6)[0]
    found = Pile(points).features(all_pairs(n))
    for row, features in zip(found, oracle.features(points).values(), strict=True):
        assert dict(zip(PAIR_FEATURES, row, strict=True)) == pytest.approx(features, abs=2e-4)


@pytest.mark.parametrize("n", [2, 41, 42, 150])
def test_pairs_are_listed_or_absent(n):
    points = blobs(n, 2, n, noise=0.6)[0]
    pile, lists = Pile(points), oracle.neighbors(points)
    listed, absent = (set(listed_pairs(pairs)) for pairs in (pile.listed(), pile.absent(pile.listed())))
    assert listed == {(i, j) for i, j in combinations(range(n), 2) if j in lists[i] or i in lists[j]}
    assert not listed & absent
    assert all(i < j for i, j in absent)
    if n <= 42:
        assert listed | absent == set(combinations(range(n), 2))
    else:
        assert len(absent) > 1000


def test_a_fit_is_the_minimum_of_its_penalized_loss():
    rng = np.random.default_rng(0)
    features, importance = 2 * rng.normal(size=(200, 4)) + 1, rng.uniform(0.1, 1, 200)
    start = Linear(np.ones(4), np.full(4, 2.0), rng.normal(size=5))
    targets = rng.uniform(size=200).round(rng.integers(2))  # some of them fractions

    def loss(weights):
        z = np.clip((features - 1) / 2, -4, 4)
        p = 1 / (1 + np.exp(-(z @ weights[:4] + weights[4])))
        change = (weights - start.weights) ** 2
        fit = -(importance * (targets * np.log(p) + (1 - targets) * np.log(1 - p))).sum()
        return fit + 3 / 2 * change[:4].sum() + 3 / 20 * change[4]

    found = start.fitted(Examples(features, targets, importance), 3.0)
    np.testing.assert_allclose(found.weights, minimize(loss, start.weights, tol=1e-10).x, atol=1e-5)
    np.testing.assert_allclose(
        found.log_odds(features), np.clip((features - 1) / 2, -4, 4) @ found.weights[:4] + found.weights[4]
    )


def test_without_evidence_what_is_known_stays():
    blank = Linear.blank(np.random.default_rng(0).normal(size=(50, 3)))
    assert blank.fitted(Examples(np.ones((5, 3)), np.ones(5), np.zeros(5)), 1.0).weights.tolist() == [0.0] * 4
    surer = blank.fitted(Examples(np.ones((5, 3)), np.ones(5), np.ones(5)), 1.0)
    surest = blank.fitted(Examples.joined([Examples(np.ones((5, 3)), np.ones(5), np.ones(5))], 500.0), 1.0)
    assert 0 < surer.log_odds(np.ones((1, 3)))[0] < surest.log_odds(np.ones((1, 3)))[0]


def drawn_graph(n, seed, fraction):
    """Log-odds of some pairs."""
    rng = np.random.default_rng(seed)
    first, second = np.triu_indices(n, 1)
    kept = rng.random(len(first)) < fraction
    labels = rng.integers(0, 4, n)
    values = np.where(labels[first] == labels[second], 1.5, -2.0) + 2 * rng.normal(size=len(first))
    return Pairs(first[kept].astype(np.int32), second[kept].astype(np.int32)), values[kept]


def nodes(tree):
    """The points of every node."""
    found = [frozenset(np.flatnonzero(tree.leaves == leaf).tolist()) for leaf in range(tree.n_leaves)]
    for a, b in tree.parts.tolist():
        found.append(found[a] | found[b])
    return found


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize(("n", "seed", "fraction"), [*((20, seed, 0.3 + 0.35 * (seed % 3)) for seed in range(6)), (95, 0, 0.9)])
def test_merges_are_those_of_plain_loops(n, seed, fraction, linked):
    pairs, values = drawn_graph(n, seed, fraction)
    must, cannot = ([(0, 7), (7, 11)], [(1, 5), (2, 3), (0, 13)]) if linked else ([], [])
    tree = pair_tree(pairs, values, -1.0, Links.parse(must, cannot, n))
    log_odds = dict(zip(listed_pairs(pairs), np.clip(values, -CLIP, CLIP).tolist(), strict=True))
    merges = oracle.average_linkage(n, log_odds, -1.0, oracle.floor(log_odds, -1.0, n), must, cannot)
    expected = {a | b: (frozenset([a, b]), *rest) for a, b, *rest in merges}
    every = [*log_odds.values(), *[-1.0] * (n * (n - 1) // 2 - len(log_odds))]
    points, heights = nodes(tree), {}
    assert len(points) == tree.n_leaves + len(expected)
    for merge, (a, b) in enumerate(tree.parts.tolist()):
        parts, link, listed, n_missing = expected[points[a] | points[b]]
        assert parts == {points[a], points[b]}
        height = heights[points[a] | points[b]] = min([link, *(heights[part] for part in parts if part in heights)])
        small, large = sorted(map(len, parts))
        across = listed + [-1.0] * (n_missing > 0)
        square = (sum(value**2 for value in listed) + n_missing) / (len(listed) + n_missing)
        features = {
            "smaller": np.log(small), "larger": np.log(large), "fraction_of_pile": np.log((small + large) / n),
            "n_single": (small == 1) + (large == 1), "nearest_pair": max(across) - height, "farthest_pair": min(across) - height,
            "spread": np.sqrt(max(square - link**2, 0)), "height": (height - np.mean(every)) / np.std(every),
        }  # fmt: skip
        found = dict(zip(MERGE_FEATURES, tree.features[merge], strict=True))
        assert {name: found[name] for name in features} == pytest.approx(features, abs=3e-3)
        assert (tree.n_across[merge], tree.sizes[tree.n_leaves + merge]) == (small * large, small + large)
    assert list(heights.values()) == sorted(heights.values(), reverse=True)  # the best first


def test_complete_merges_all_that_is_connected():
    pairs, values = drawn_graph(20, 0, 0.3)
    assert len(pair_tree(pairs, values, -1.0, Links.parse(None, None, 20), complete=True).parts) == 19
    apart = Links.parse(None, [(0, 1), (0, 2), (1, 2)], 20)
    tree = pair_tree(pairs, values, -1.0, apart, complete=True)
    assert all(len({0, 1, 2} & node) < 2 for node in nodes(tree))


def drawn_tree(n, seed):
    """A tree of at most n leaves, some of them of several points, with a probability of each merge."""
    rng = np.random.default_rng(seed)
    sizes, open_nodes, parts = rng.integers(1, 4, n).astype(float).tolist(), list(range(n)), []
    for _ in range(rng.integers(0, n)):
        a, b = sorted(rng.choice(open_nodes, 2, replace=False).tolist())
        parts.append((a, b))
        open_nodes = [node for node in open_nodes if node not in (a, b)] + [len(sizes)]
        sizes.append(sizes[a] + sizes[b])
    pairs, sizes = np.array(parts, dtype=np.int64).reshape(-1, 2), np.array(sizes)
    leaves = np.repeat(np.arange(n), sizes[:n].astype(int))
    probability = rng.beta(0.5, 0.5, len(pairs))
    return PairTree(leaves, sizes, pairs, sizes[pairs].prod(axis=1), np.empty((len(pairs), 0))), probability


def made_by(cut, tree):
    return (cut.roots[tree.n_leaves :] >= 0).tolist()


@given(st.integers(1, 8), st.integers(0, 10_000))
def test_no_cut_has_a_better_expected_f1(n, seed):
    tree, probability = drawn_tree(n, seed)
    cut, inner = best_cut(tree, probability), tree.sizes[:n]
    known, parts = float((inner * (inner - 1) / 2).sum()), tree.parts.tolist()
    f1 = {made: oracle.expected_f1(made, probability, tree.n_across, known) for made in oracle.cuts(parts, n)}
    assert cut.f1 == pytest.approx(max(f1.values()), abs=1e-7)
    assert f1[tuple(made_by(cut, tree))] == pytest.approx(cut.f1, abs=1e-7)
    points = nodes(tree)
    for node, root in enumerate(cut.roots.tolist()):
        assert root < 0 or (points[node] <= points[root] and cut.roots[root] == root)


@given(st.integers(1, 8), st.integers(0, 10_000), st.floats(-3, 3))
def test_a_shift_asks_for_surer_merges(n, seed, shift):
    tree, probability = drawn_tree(n, seed)
    plain, cut = best_cut(tree, probability), best_cut(tree, probability, shift)
    assert np.log(cut.price / (1 - cut.price)) == pytest.approx(np.log(plain.price / (1 - plain.price)) + shift)
    gains = {
        made: sum((p - cut.price) * n for m, p, n in zip(made, probability, tree.n_across, strict=True) if m)
        for made in oracle.cuts(tree.parts.tolist(), n)
    }
    assert gains[tuple(made_by(cut, tree))] == pytest.approx(max(gains.values()), abs=1e-9)
    finer, coarser = (plain, cut) if shift < 0 else (cut, plain)
    assert set(np.flatnonzero(made_by(finer, tree))) <= set(np.flatnonzero(made_by(coarser, tree)))


def test_a_number_of_groups_makes_the_best_merges():
    tree, probability = drawn_tree(8, 3)
    n_fewest = 8 - len(tree.parts)
    for n_groups in range(n_fewest, 9):
        cut = cut_into(tree, probability, n_groups)
        assert len(np.unique(cut.roots[:8])) == n_groups
        assert made_by(cut, tree) == [merge < 8 - n_groups for merge in range(len(tree.parts))]
    for wrong in (n_fewest - 1, 9):
        with pytest.raises(
            ValueError, match=rf"there can be {n_fewest} to 8 clusters .*; got n_clusters={wrong}: ask for another"
        ):
            cut_into(tree, probability, wrong)
