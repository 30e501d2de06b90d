"""Which merges of a tree to make: those that maximize the expected pairwise F1.

With p the probability that a pair across the two parts of a merge is of one class, and n the number of these pairs, the groups
that the merges M make are expected to have

    F1 = 2 · Σ_M p·n / (Σ_M n + Σ p·n over all merges)

The largest F1 is F when the best Σ_M (p − F/2) · n is F/2 · Σ p·n (Dinkelbach 1967). Given the price F/2, the best merges follow
from the leaves up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.clustering.pair_tree import PairTree

_MAX_ROUNDS = 30


@dataclass(frozen=True, eq=False)
class Cut:
    """The groups of a tree. Arrays are per node: leaves, then merges."""

    roots: NDArray[np.int64]  # the node that is the group of this node; −1 above the groups
    gains: NDArray[np.float64]  # Σ (p − price) · n of the merges up to this one, less that of the best cut below it
    expected: NDArray[np.float64]  # Σ p · n of the merges up to this one: pairs of one class within it
    price: float
    f1: float  # expected


def best_cut(tree: PairTree, probability: NDArray[np.float64], shift: float = 0.0) -> Cut:
    """The cut with the best expected F1; a shift of the price's log-odds above 0 makes groups finer, below 0 coarser."""
    inner = tree.sizes[: tree.n_leaves]
    known = inner * (inner - 1) / 2  # pairs that are joined anyway
    expected = _summed(tree.parts, np.concatenate([known, probability * tree.n_across]))
    total = float(known.sum() + (probability * tree.n_across).sum())
    price, f1 = 0.5, 0.0
    for _ in range(_MAX_ROUNDS):
        roots, gains = _groups(tree.parts, probability, tree.n_across, price, tree.n_leaves)
        made = roots[tree.n_leaves :] >= 0
        joined = float(known.sum() + (probability * tree.n_across)[made].sum())
        f1 = 2 * joined / max(float(known.sum() + tree.n_across[made].sum()) + total, 1e-300)
        if abs(f1 / 2 - price) < 1e-9:
            break
        price = max(f1 / 2, 1e-6)
    if shift:
        price = 1 / (1 + (1 / price - 1) * np.exp(-shift))
        roots, gains = _groups(tree.parts, probability, tree.n_across, price, tree.n_leaves)
    return Cut(roots, gains, expected, price, f1)


def cut_into(tree: PairTree, probability: NDArray[np.float64], n_groups: int) -> Cut:
    """The cut with so many groups: the merges of the tree in their order, the best first."""
    n_made = max(tree.n_leaves - n_groups, 0)
    if n_groups > tree.n_leaves or n_made > len(tree.parts):
        n_fewest = tree.n_leaves - len(tree.parts)
        raise ValueError(
            f"there can be {n_fewest:,} to {tree.n_leaves:,} clusters of these points and links; got n_clusters={n_groups:,}: "
            "ask for another number"
        )
    whole = best_cut(tree, probability)
    roots = np.arange(len(tree.sizes))
    for i in range(n_made - 1, -1, -1):
        roots[tree.parts[i]] = roots[tree.n_leaves + i]
    roots[tree.n_leaves + n_made :] = -1
    return Cut(roots, whole.gains, whole.expected, whole.price, whole.f1)


def halves(tree: PairTree, cut: Cut) -> NDArray[np.int64]:
    """(n_leaves,) the part of its group's last merge that a leaf is in: a node; −1 for a group of one leaf."""
    return _halves(tree.parts, cut.roots, tree.n_leaves)


@njit(cache=True, nogil=True)
def _halves(parts: NDArray[np.int64], roots: NDArray[np.int64], n_leaves: int) -> NDArray[np.int64]:
    found = np.full(len(roots), -1)
    for i in range(len(parts) - 1, -1, -1):
        node = n_leaves + i
        for part in parts[i]:
            found[part] = part if roots[node] == node else found[node]
    return found[:n_leaves]


@njit(cache=True, nogil=True)
def _summed(parts: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Every node's value and those of all below it."""
    found = values.copy()
    n_leaves = len(values) - len(parts)
    for i in range(len(parts)):
        found[n_leaves + i] += found[parts[i, 0]] + found[parts[i, 1]]
    return found


@njit(cache=True, nogil=True)
def _groups(
    parts: NDArray[np.int64], probability: NDArray[np.float64], n_across: NDArray[np.float64], price: float, n_leaves: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    n = n_leaves + len(parts)
    whole, best, gains = np.zeros(n), np.zeros(n), np.zeros(n)  # gain of the node as one group, and of the best groups of it
    for i in range(len(parts)):
        a, b = parts[i]
        node = n_leaves + i
        whole[node] = whole[a] + whole[b] + (probability[i] - price) * n_across[i]
        gains[node] = whole[node] - (best[a] + best[b])
        best[node] = max(whole[node], best[a] + best[b])
    roots = np.full(n, -1)
    for i in range(len(parts) - 1, -1, -1):
        node = n_leaves + i
        if roots[node] < 0 and gains[node] >= 0:
            roots[node] = node
        for part in parts[i]:
            roots[part] = roots[node]
    for leaf in range(n_leaves):
        if roots[leaf] < 0:
            roots[leaf] = leaf
    return roots, gains
