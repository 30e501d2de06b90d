"""How sure it is where a point belongs, and which pairs to ask a person about.

Two kinds of questions alternate. Is a group the same as the other one that it is most probably the same as? The surer come first.
And is a point of one class with its group? The most ambiguous come first. For a group stands the point in its middle, of those
that are known to be together if there are any, so that answers join what is known instead of scattering it.
"""

from __future__ import annotations

from itertools import chain, zip_longest

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array  # type: ignore[import-untyped]
from scipy.special import expit  # type: ignore[import-untyped]

from facetric.clustering.group_features import Scores
from facetric.clustering.links import Links

MOST_QUESTIONS = 500  # that are worth asking


def ambiguity(scores: Scores, labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """How probable it is that a point is of one class with the best other cluster, over the same of its own, by mean log-odds.

    ½ stands for the latter where a point is alone; at most 1.
    """
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
    if len(sizes) == 1:
        return np.zeros(n)
    found: NDArray[np.float64] = np.minimum(expit(other) / np.maximum(expit(own), 1e-9), 1.0)
    return found


def questions(
    vectors: NDArray[np.float32], links: Links, scores: Scores, labels: NDArray[np.int64], doubt: NDArray[np.float64]
) -> NDArray[np.int64]:
    """(n_questions, 2) pairs of points, the most useful first; none whose answer is known."""
    middles = _middles(vectors, links, labels)
    groups = middles[_nearest_groups(links, scores, labels)]
    asked = np.flatnonzero(links.codes != links.codes[middles[labels]])
    asked = asked[np.argsort(-doubt[asked], kind="stable")[: 4 * MOST_QUESTIONS]]
    members = np.column_stack([asked, middles[labels[asked]]])
    known = {tuple(pair) for pair in links.cannot_between(links.codes).tolist()}
    found = list[list[int]]()
    for pair in chain.from_iterable(zip_longest(groups.tolist(), members.tolist())):
        if pair is None:
            continue
        codes = tuple(sorted(links.codes[pair].tolist()))
        if codes[0] != codes[1] and codes not in known:
            known.add(codes)
            found.append(pair)
            if len(found) == MOST_QUESTIONS:
                break
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def _middles(vectors: NDArray[np.float32], links: Links, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of every cluster a point: of its largest part that is known to be together, the one most like the cluster's mean."""
    n, sizes = len(labels), np.bincount(labels)
    member = csr_array((np.ones(n, dtype=np.float32), (labels, np.arange(n))), shape=(len(sizes), n))
    sums = member @ vectors
    likeness = np.einsum("ij,ij->i", vectors, sums[labels])
    order = np.lexsort((-likeness, -np.bincount(links.codes)[links.codes], labels))
    found: NDArray[np.int64] = order[np.searchsorted(labels[order], np.arange(len(sizes)))]
    return found


def _nearest_groups(links: Links, scores: Scores, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n_pairs, 2) clusters: each with the one that it is most probably the same as, and may be; the most probable first."""
    sizes = np.bincount(labels).astype(np.float64)
    ends = labels[np.column_stack(scores.pairs)]
    apart = ends[:, 0] != ends[:, 1]
    ends, more = np.sort(ends[apart], axis=1), scores.log_odds[apart] - scores.background
    cells = coo_array((more, ends.T), shape=(len(sizes), len(sizes))).tocsr().tocoo()
    forbidden = np.sort(labels[links.cannot], axis=1).reshape(-1, 2)
    allowed = ~np.isin(cells.row.astype(np.int64) * len(sizes) + cells.col, forbidden[:, 0] * len(sizes) + forbidden[:, 1])
    pairs = np.column_stack([cells.row, cells.col]).astype(np.int64)[allowed]
    means = (cells.data / (sizes[cells.row] * sizes[cells.col]))[allowed]
    order = np.lexsort((pairs[:, 1], pairs[:, 0], -means))
    pairs = pairs[order]
    best = np.unique(pairs.ravel(), return_index=True)[1] // 2  # the first pair of each cluster
    found: NDArray[np.int64] = pairs[np.unique(best)]
    return found
