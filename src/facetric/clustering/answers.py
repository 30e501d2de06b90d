"""What answers about some pairs of a pile teach about all others.

Directions in which points differ that are known to be together count less, as in relevant component analysis (Bar-Hillel et al.,
Learning a Mahalanobis Metric from Equivalence Constraints, JMLR 2005). And an answer spreads to pairs of points that are near
those that it is about, as in constraint propagation (Lu and Peng, Exhaustive and Efficient Constraint Propagation, IJCV 2013):
with S the normalized graph of probable pairs, and a column of E for every group of known points,

    P = Σ_t α^t · S^t · E,  each column ending at 1;    log-odds of (i, j) += 2 · (Σ_C P_iC · P_jC − Σ_{C, D apart} P_iC · P_jD)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, diags_array  # type: ignore[import-untyped]
from scipy.special import expit  # type: ignore[import-untyped]

from facetric.clustering.group_features import Scores
from facetric.clustering.links import Links

_SHRINKAGE = 0.7  # of the differences within groups, in mean variances of the pile's effective dimensions
_MOST = 1000  # points that these differences, and the variances, are taken from
_KEPT, _N_STEPS, _EVIDENCE = 0.7, 8, 2.0  # α, the largest t, and the log-odds that an answer itself gets
_LEAST = 0.01  # of P that is kept


def adapted(vectors: NDArray[np.float32], links: Links) -> NDArray[np.float32] | None:
    """The vectors (n, d), shorter along the directions in which points that must be together differ; None where none must."""
    rows = np.flatnonzero(np.bincount(links.codes)[links.codes] > 1)
    if not len(rows):
        return None
    _, groups = np.unique(links.codes[rows], return_inverse=True)
    member = csr_array((np.ones(len(rows)), (groups, np.arange(len(rows)))))
    inner = vectors[rows] - ((member @ vectors[rows]) / np.bincount(groups)[:, None])[groups]
    freedom = len(rows) - int(groups.max()) - 1
    _, lengths, axes = np.linalg.svd(_sample(inner) * np.sqrt(len(inner) / min(len(inner), _MOST)), full_matrices=False)
    some = _sample(vectors).astype(np.float64)
    some -= some.mean(axis=0)
    products = some @ some.T
    total = float(np.trace(products))
    if total <= 0:
        return None
    variance = float((products**2).sum()) / total / len(some)  # over dimensions: Σλ² / Σλ
    shrunk = 1 / np.sqrt(1 + lengths**2 / freedom / (_SHRINKAGE * variance))
    axes = axes.astype(np.float32)
    found: NDArray[np.float32] = vectors - ((vectors @ axes.T) * (1 - shrunk).astype(np.float32)) @ axes
    return found


def spread(scores: Scores, links: Links) -> Scores:
    """The log-odds of the listed pairs with what is known about pairs near them."""
    n, known = len(links.codes), np.flatnonzero(links.linked)
    if not len(known):
        return scores
    first, second = scores.pairs
    probable = expit(scores.log_odds)
    ends = np.concatenate([first, second]), np.concatenate([second, first])
    graph = coo_array((np.tile(probable, 2), ends), shape=(n, n)).tocsr()
    scale = diags_array(1 / np.sqrt(np.maximum(graph.sum(axis=0), 1e-9)))
    graph = _KEPT * (scale @ graph @ scale)
    groups, columns = np.unique(links.codes[known], return_inverse=True)
    start = coo_array((np.ones(len(known)), (known, columns)), shape=(n, len(groups))).tocsr()
    reach = start
    for _ in range(_N_STEPS):
        reach = graph @ reach + start
        reach.data[reach.data < _LEAST] = 0
        reach.eliminate_zeros()
    reach = (reach @ diags_array(1 / reach.max(axis=0).toarray().ravel())).tocsr()
    is_joined = np.bincount(links.codes)[groups] > 1
    apart = np.searchsorted(groups, links.cannot_between(links.codes))
    between = np.vstack([np.repeat(np.flatnonzero(is_joined)[:, None], 2, axis=1), apart, apart[:, ::-1]])
    signs = np.where(between[:, 0] == between[:, 1], _EVIDENCE, -_EVIDENCE)
    effect = (reach @ coo_array((signs, between.T), shape=(len(groups), len(groups))).tocsr()).tocsr()
    near = np.flatnonzero((np.diff(effect.indptr)[first] > 0) & (np.diff(reach.indptr)[second] > 0))
    more = scores.log_odds.copy()
    more[near] += effect[first[near]].multiply(reach[second[near]]).sum(axis=1)
    return Scores(scores.pairs, more, scores.background)


def _sample(rows: NDArray[np.floating]) -> NDArray[np.floating]:
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), _MOST)).astype(np.int64)]
