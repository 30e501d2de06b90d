"""How sure it is where a point belongs, and which pairs to ask a person about.

Three kinds of questions take turns. Are two groups the same? The surest and largest come first. Is a point of one class with its
group? Those come first that would rather be elsewhere. Are the two parts of a group the same that merged last? The surest and
largest no comes first. For a group stands the point in its middle, of those that are known to be together if there are any, so
that answers join what is known instead of scattering it.
"""

from __future__ import annotations

from itertools import chain, zip_longest

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array  # type: ignore[import-untyped]

from facetric.clustering.group_features import Scores
from facetric.clustering.links import Links
from facetric.clustering.pair_tree import PairTree

MOST_QUESTIONS = 500  # that are worth asking


def belonging(scores: Scores, labels: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean log-odds that a point is of one class with its own cluster (0 where it is alone), and with the best other."""
    n, sizes = len(labels), np.bincount(labels)
    first, second = scores.pairs
    ends = np.concatenate([first, second]), labels[np.concatenate([second, first])]
    more = np.tile(scores.log_odds - scores.background, 2)
    cells = coo_array((more, ends), shape=(n, len(sizes))).tocsr().tocoo()
    is_own = labels[cells.row] == cells.col
    means = scores.background + cells.data / np.maximum(sizes[cells.col] - is_own, 1)
    own, other = np.where(sizes[labels] > 1, scores.background, 0.0), np.full(n, scores.background)
    own[cells.row[is_own]] = means[is_own]
    np.maximum.at(other, cells.row[~is_own], means[~is_own])
    return own, other if len(sizes) > 1 else np.full(n, -np.inf)


def questions(
    vectors: NDArray[np.float32],
    links: Links,
    scores: Scores,
    labels: NDArray[np.int64],
    ambiguity: NDArray[np.float64],
    tree: PairTree,
    probability: NDArray[np.float64],
    last: NDArray[np.int64],
) -> NDArray[np.int64]:
    """(n_questions, 2) pairs of points, the most useful first; none whose answer is known.

    `ambiguity` says how much rather a point would be elsewhere, `last` of every point the part of its group's last merge.
    """
    middles = _middles(vectors, links.codes, labels)
    groups = middles[_group_pairs(links, scores, labels)].tolist()
    asked = np.flatnonzero(links.codes != links.codes[middles[labels]])
    asked = asked[np.argsort(-ambiguity[asked], kind="stable")[: 4 * MOST_QUESTIONS]]
    members = np.column_stack([asked, middles[labels[asked]]]).tolist()
    parts = _parts(vectors, links, tree, probability, last).tolist()
    known = {tuple(pair) for pair in links.cannot_between(links.codes).tolist()}
    found = list[list[int]]()
    for pair in chain.from_iterable(zip_longest(groups[::2], members[::2], groups[1::2], members[1::2], parts)):
        if pair is None:
            continue
        codes = tuple(sorted(links.codes[pair].tolist()))
        if codes[0] != codes[1] and codes not in known:
            known.add(codes)
            found.append(pair)
            if len(found) == MOST_QUESTIONS:
                break
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def _middles(vectors: NDArray[np.float32], known: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of every cluster a point: of its largest part with one code in `known`, the one most like the cluster's mean."""
    n, sizes = len(labels), np.bincount(labels)
    member = csr_array((np.ones(n, dtype=np.float32), (labels, np.arange(n))), shape=(len(sizes), n))
    sums = member @ vectors
    likeness = np.einsum("ij,ij->i", vectors, sums[labels])
    order = np.lexsort((-likeness, -np.bincount(known)[known], labels))
    found: NDArray[np.int64] = order[np.searchsorted(labels[order], np.arange(len(sizes)))]
    return found


def _group_pairs(links: Links, scores: Scores, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n_pairs, 2) clusters that may be the same, the most probable and largest first."""
    sizes = np.bincount(labels).astype(np.float64)
    ends = labels[np.column_stack(scores.pairs)]
    apart = ends[:, 0] != ends[:, 1]
    ends, more = np.sort(ends[apart], axis=1), scores.log_odds[apart] - scores.background
    cells = coo_array((more, ends.T), shape=(len(sizes), len(sizes))).tocsr().tocoo()
    forbidden = np.sort(labels[links.cannot], axis=1).reshape(-1, 2)
    allowed = ~np.isin(cells.row.astype(np.int64) * len(sizes) + cells.col, forbidden[:, 0] * len(sizes) + forbidden[:, 1])
    pairs = np.column_stack([cells.row, cells.col]).astype(np.int64)[allowed]
    n_pairs = sizes[pairs].prod(axis=1)
    values = cells.data[allowed] / n_pairs + np.log(n_pairs) / 2
    found: NDArray[np.int64] = pairs[np.lexsort((pairs[:, 1], pairs[:, 0], -values))[: 4 * MOST_QUESTIONS]]
    return found


def _parts(
    vectors: NDArray[np.float32], links: Links, tree: PairTree, probability: NDArray[np.float64], last: NDArray[np.int64]
) -> NDArray[np.int64]:
    """(n_pairs, 2) points in the middle of the two parts of each group that merged last."""
    inside = np.flatnonzero(last >= 0)
    nodes, labels = np.unique(last[inside], return_inverse=True)
    is_made = np.isin(tree.parts[:, 0], nodes) & np.isin(tree.parts[:, 1], nodes)
    values = (1 - probability[is_made]) * tree.n_across[is_made]
    made = tree.parts[is_made][np.argsort(-values, kind="stable")[:MOST_QUESTIONS]]
    if not len(made):
        return made
    codes = np.unique(links.codes[inside], return_inverse=True)[1]
    middles = inside[_middles(vectors[inside], codes, labels)]
    found: NDArray[np.int64] = middles[np.searchsorted(nodes, made)]
    return found
