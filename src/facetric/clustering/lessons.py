"""Piles of many shapes, drawn from labeled classes: what a pair model learns from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facetric.clustering.linear import Examples
from facetric.clustering.pair_tree import PairTree
from facetric.clustering.pile import PAIR_FEATURES, Pairs, Pile

_LARGEST = 320  # photos of a drawn pile
_MOST_CLASSES = 100
_NEAR, _N_NEAR, _N_PAIRS = 10, 750, 1500  # pairs up to this rank, and how many a pile teaches of these and of all
_RAREST = 0.005  # fraction of pairs of one class, below which a pile weighs no more


def drawn_rows(classes: NDArray[np.int64], n_draws: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """The rows of as many piles of 3 to 100 of these classes, their number log-uniform, of at most about 320 photos."""
    own, draws = np.unique(classes), list[NDArray[np.int64]]()
    most = min(_MOST_CLASSES, len(own))
    for _ in range(20 * n_draws):
        sizes = _drawn_sizes(round(float(np.exp(rng.uniform(np.log(min(3, most)), np.log(most))))), rng)
        while sizes.sum() > _LARGEST and len(sizes) > 3:
            sizes = sizes[rng.permutation(len(sizes))[: max(3, int(len(sizes) * _LARGEST / sizes.sum()))]]
        chosen = rng.permutation(own)[: len(sizes)]
        rows = np.concatenate([rng.permutation(np.flatnonzero(classes == c))[:n] for c, n in zip(chosen, sizes, strict=True)])
        if len(rows) >= 8 and np.bincount(classes[rows]).max() > 1:
            draws.append(rows)
        if len(draws) == n_draws:
            break
    return draws


def _drawn_sizes(n_classes: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Photos per class: even, a long tail or log-normal; often with single photos."""
    shape = rng.random()
    if shape < 0.45:
        sizes = np.full(n_classes, rng.choice([2, 3, 5, 8, 12, 15, 20, 30]))
    elif shape < 0.75:
        sizes = np.round(np.geomspace(rng.choice([10, 20, 30]), rng.choice([1, 2, 3]), n_classes)).astype(np.int64)
    else:
        drawn = rng.lognormal(np.log(rng.uniform(3, 12)), rng.uniform(0.4, 1.0), n_classes)
        sizes = np.clip(np.round(drawn), 1, 40).astype(np.int64)
    if rng.random() < 0.3:
        sizes[rng.permutation(n_classes)[: max(1, int(rng.uniform(0.1, 0.5) * n_classes))]] = 1
    if (sizes > 1).sum() < 2:
        sizes[:2] = 3
    return sizes


@dataclass(frozen=True, eq=False)
class Lesson:
    """A pile of which the classes are known."""

    classes: NDArray[np.int64]  # (n,)
    listed: Pairs
    features: NDArray[np.float32]  # of the listed pairs, then of absent ones
    examples: Examples  # some of the pairs

    @classmethod
    def of(cls, vectors: NDArray[np.float32], classes: NDArray[np.int64]) -> Lesson:
        """The lesson of a pile."""
        pile = Pile(vectors)
        listed = pile.listed()
        absent = pile.absent(listed)
        both = Pairs(*(np.concatenate(part) for part in zip(listed, absent, strict=True)))
        features = pile.features(both)
        same, n, n_listed = classes[both.first] == classes[both.second], len(classes), len(listed.first)
        n_others = n * (n - 1) // 2 - n_listed
        is_near = features[:n_listed, PAIR_FEATURES.index("rank_lower")] < np.log(_NEAR + 0.5)
        near, far, others = np.flatnonzero(is_near), np.flatnonzero(~is_near), np.arange(n_listed, len(same))
        room, n_rest = _N_PAIRS - min(len(near), _N_NEAR), max(len(far) + n_others, 1)
        rng, parts = np.random.default_rng(n_listed), list[tuple[NDArray[np.int64], float]]()
        for rows, n_pairs, most in (
            (near, len(near), _N_NEAR), (far, len(far), room * len(far) // n_rest), (others, n_others, room * n_others // n_rest)
        ):  # fmt: skip
            some = rng.choice(rows, min(len(rows), most), replace=False)
            parts.append((some, n_pairs / max(len(some), 1)))
        chosen, weight = np.concatenate([rows for rows, _ in parts]), np.repeat([w for _, w in parts], [len(r) for r, _ in parts])
        weight /= weight.sum()
        fraction = float(weight @ same[chosen])
        examples = Examples(features[chosen], same[chosen].astype(np.float64), weight / np.sqrt(max(fraction, _RAREST)))
        return cls(classes, listed, features, examples)

    def merges(self, tree: PairTree) -> Examples:
        """Per merge: the fraction of the pairs across its parts that are of one class."""
        counts = np.zeros((len(tree.sizes), int(self.classes.max()) + 1))
        counts[tree.leaves, self.classes] = 1
        targets = np.empty(len(tree.parts))
        for i, (a, b) in enumerate(tree.parts.tolist(), start=tree.n_leaves):
            targets[i - tree.n_leaves] = counts[a] @ counts[b] / (counts[a].sum() * counts[b].sum())
            counts[i] = counts[a] + counts[b]
        return Examples(tree.features, targets, tree.n_across / max(tree.n_across.sum(), 1.0))

    def precision(self, roots: NDArray[np.int64], groups: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of each of these groups: the fraction of its pairs that are of one class."""
        cells, counts = np.unique(np.column_stack([roots, self.classes]), axis=0, return_counts=True)
        sizes = np.bincount(roots)[groups]
        pairs = np.bincount(cells[:, 0], counts * (counts - 1.0), int(groups.max()) + 1)[groups]
        found: NDArray[np.float64] = pairs / (sizes * (sizes - 1.0))
        return found
