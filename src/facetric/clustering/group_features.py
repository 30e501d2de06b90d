"""What is known of a group when its precision is estimated: what its merges let expect, and how it stands in its pile."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit  # type: ignore[import-untyped]

from facetric.clustering.cut import Cut
from facetric.clustering.pair_tree import PairTree
from facetric.clustering.pile import Pairs

GROUP_FEATURES = (
    "expected", "size", "n_groups", "n_photos", "last_merge", "f1", "is_pair", "parent", "inside", "outside", "alone",
    "mean_size",
)  # fmt: skip
_CLIP = 1e-3  # nothing is expected more surely
_FEW = 0.05  # photos of one class, outside or inside, that do not count


class Scores(NamedTuple):
    """What a model says about the pairs of a pile."""

    pairs: Pairs  # the listed ones
    log_odds: NDArray[np.float64]  # that the two are of one class
    background: float  # the mean log-odds of all other pairs


def group_features(
    scores: Scores, tree: PairTree, probability: NDArray[np.float64], cut: Cut
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The groups of two points or more of a cut, and (n_groups, 12) named by GROUP_FEATURES."""
    roots = np.unique(cut.roots[: tree.n_leaves])
    groups = roots[tree.sizes[roots] > 1]
    sizes, n_points = tree.sizes[groups], float(tree.sizes[: tree.n_leaves].sum())
    n_pairs = sizes * (sizes - 1) / 2
    of_nodes = np.concatenate([np.ones(tree.n_leaves), probability])
    above = np.zeros(len(tree.sizes))  # the probability of the merge that a node is part of
    above[tree.parts] = probability[:, None]
    inside, outside = _expected(scores, tree, cut, len(tree.sizes))
    inside, outside = inside[groups], outside[groups]
    n_listed = inside[:, 1]
    inner = inside[:, 0] + (n_pairs - n_listed) * expit(scores.background)
    same = np.full(len(groups), np.log(max(len(groups), 1))), np.full(len(groups), np.log(n_points))
    columns = [
        _log_odds(cut.expected[groups] / n_pairs), np.log(sizes), *same, _log_odds(of_nodes[groups]),
        np.full(len(groups), _log_odds(cut.f1)), 1.0 * (sizes == 2), _log_odds(above[groups]), _log_odds(inner / n_pairs),
        np.log((outside / sizes + _FEW) / (2 * inside[:, 0] / sizes + _FEW)),
        np.full(len(groups), (tree.sizes[roots] == 1).mean()), np.full(len(groups), np.log(sizes).sum() / max(len(groups), 1)),
    ]  # fmt: skip
    return groups, np.column_stack(columns)


def _log_odds(p: NDArray[np.float64] | float) -> NDArray[np.float64]:
    found: NDArray[np.float64] = logit(np.clip(p, _CLIP, 1 - _CLIP))
    return found


def _expected(scores: Scores, tree: PairTree, cut: Cut, n_nodes: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Per root, of the listed pairs: (probabilities inside, their number), and the probabilities of those that lead out."""
    first, second = (cut.roots[tree.leaves[ends]] for ends in scores.pairs)
    probable, own = expit(scores.log_odds), first == second
    columns = [np.bincount(first[own], weights, n_nodes) for weights in (probable[own], np.ones(np.count_nonzero(own)))]
    out = [np.bincount(ends[~own], probable[~own], n_nodes) for ends in (first, second)]
    inside: NDArray[np.float64] = np.column_stack(columns).astype(np.float64)
    outside: NDArray[np.float64] = np.add(*out).astype(np.float64)
    return inside, outside
