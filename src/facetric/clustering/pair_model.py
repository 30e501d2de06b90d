"""How probable it is that two photos are of one class, learned from labeled classes: `PairModel`.

1. A linear model of 17 features of a pair within its pile (`pile`) gives the log-odds that the two are of one class.
2. Average linkage on these log-odds (`pair_tree`). A linear model of 23 features of a merge gives the probability that a pair
   across its two parts is of one class. It takes the place of what the pairs say one by one.
3. The groups are those with the best expected pairwise F1 (`cut`).
4. A linear model of 12 features of a group (`group_features`) corrects the precision that its merges let expect.

All three are learned on piles of many shapes that are drawn from labeled classes. No feature is a similarity as it is, so what
some kinds of photos teach holds for others. Fitting starts from what is known: few classes change little.

Wang et al., Linkage Based Face Clustering via Graph Convolution Network, CVPR 2019; Yang et al., Learning to Cluster Faces via
Confidence and Connectivity Estimation, CVPR 2020; Xing et al., Learning Hierarchical Graph Neural Networks for Image Clustering
(Hi-LANDER), ICCV 2021.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit  # type: ignore[import-untyped]

from facetric.clustering.cut import Cut, best_cut
from facetric.clustering.group_features import GROUP_FEATURES, Scores, group_features
from facetric.clustering.lessons import Lesson, drawn_rows
from facetric.clustering.linear import Examples, Linear
from facetric.clustering.links import Links
from facetric.clustering.pair_tree import MERGE_FEATURES, PairTree, pair_tree
from facetric.clustering.pile import PAIR_FEATURES, Pairs, Pile
from facetric.metrics import label_codes

FORMAT = 1  # of as_dict
N_DRAWS = 60  # piles that a fit draws: a third of all classes, a third of either half
_STRENGTH = 3.0  # of what is known before
_FEWEST = 6  # classes, below which the expected precision stays as it was, and halves do not teach
_TRUST = 3.0  # what a class weighs when the expected precision is corrected
_NAMES = {"pairs": PAIR_FEATURES, "merges": MERGE_FEATURES, "groups": GROUP_FEATURES}


@dataclass(frozen=True, eq=False, repr=False)
class PairModel:
    """How probable it is that two photos are of one class, judged by the pile that they are in.

    :meth:`packaged` is what comes with the install, learned on birds, pets, groceries and characters through several networks;
    :meth:`fit` adapts it to labeled classes of your own, on which the network was not trained.

    >>> rng = np.random.default_rng(0)
    >>> X = np.repeat(rng.standard_normal((4, 16)), 10, axis=0) + 0.3 * rng.standard_normal((40, 16))
    >>> pairs, log_odds, background = PairModel.packaged().log_odds(X)
    >>> same = pairs.first // 10 == pairs.second // 10
    >>> bool(log_odds[same].mean() > 0 > log_odds[~same].mean())
    True
    """

    pairs: Linear
    merges: Linear
    groups: Linear
    error: float  # of the log-odds of a pile's precision, which nine piles in ten do not exceed
    n_classes: int = 0  # of its own that it was fitted to

    @classmethod
    @cache
    def packaged(cls) -> PairModel:
        """The model that comes with the install."""
        return cls.from_dict(json.loads(Path(__file__).with_name("pair_model.json").read_text(encoding="utf-8")))

    def __repr__(self) -> str:
        return f"<PairModel: {f'fitted to {self.n_classes:,} classes' if self.n_classes else 'as it comes with the install'}>"

    def log_odds(self, vectors: ArrayLike | Pile) -> Scores:
        """The log-odds of every pair of which one is among the 40 nearest of the other."""
        pile = vectors if isinstance(vectors, Pile) else Pile(vectors)
        listed = pile.listed()
        if not len(listed.first):  # of one vector
            return Scores(listed, np.empty(0), 0.0)
        absent = pile.absent(listed)
        features = pile.features(Pairs(*(np.concatenate(both) for both in zip(listed, absent, strict=True))))
        return self._scores(listed, features)

    def _scores(self, listed: Pairs, features: NDArray[np.float32]) -> Scores:
        found, n = self.pairs.log_odds(features), len(listed.first)
        return Scores(listed, found[:n], float(found[n:].mean()) if len(found) > n else float(found.min(initial=0.0)))

    def connected(self, pile: Pile, scores: Scores) -> Scores:
        """The same, with pairs that join what the listed ones leave in parts."""
        more = pile.bridges(scores.pairs)
        if not len(more.first):
            return scores
        pairs = Pairs(*(np.concatenate(both) for both in zip(scores.pairs, more, strict=True)))
        return Scores(pairs, np.concatenate([scores.log_odds, self.pairs.log_odds(pile.features(more))]), scores.background)

    def tree(self, scores: Scores, links: Links, *, complete: bool = False) -> tuple[PairTree, NDArray[np.float64]]:
        """Average linkage on the log-odds, and the probability that a pair across the parts of a merge is of one class."""
        tree = pair_tree(*scores, links, complete=complete)
        return tree, expit(self.merges.log_odds(tree.features))

    def precision(
        self, scores: Scores, tree: PairTree, probability: NDArray[np.float64], cut: Cut
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The groups of two points or more, and of each the expected fraction of its pairs that are of one class."""
        groups, features = group_features(scores, tree, probability, cut)
        return groups, expit(self.groups.log_odds(features))

    def fit(self, vectors: ArrayLike, labels: ArrayLike, *, seed: int = 0) -> PairModel:
        """This model adapted to labeled vectors: maximum a posteriori, its coefficients being the mean of the prior.

        All the data together weighs as much as there are classes, so few of them change little. How far the expected precision
        holds is measured on other piles of the same classes: halves of them told it worse for many classes.
        """
        x, classes = np.asarray(vectors, dtype=np.float32), label_codes(labels)
        n_classes = int(np.count_nonzero(np.bincount(classes) > 1))
        if x.ndim != 2 or len(x) != len(classes) or not np.isfinite(x).all():
            raise ValueError(
                f"vectors must be (n, d), finite, with one label each; got {x.shape} and {len(classes)} labels: pass both"
            )
        if n_classes < 2:
            raise ValueError(
                f"two classes of two images or more teach what belongs together; got {n_classes}: add labeled images"
            )
        rng = np.random.default_rng(seed)
        order = rng.permutation(int(classes.max()) + 1)
        parts = [np.arange(len(classes)), *(np.flatnonzero(np.isin(classes, half)) for half in np.array_split(order, 2))]
        if n_classes < _FEWEST:
            del parts[1:]
        lessons = [
            [Lesson.of(x[rows[own]], classes[rows[own]]) for own in drawn_rows(classes[rows], N_DRAWS // len(parts), rng)]
            for rows in parts
        ]
        if not lessons[0]:
            raise ValueError(f"piles of eight images or more teach what belongs together; got {len(x)}: add labeled images")
        found = self.taught([lesson for some in lessons for lesson in some], n_classes)
        if n_classes >= _FEWEST:
            tests = [Lesson.of(x[own], classes[own]) for own in drawn_rows(classes, N_DRAWS, rng)]
            found = found.corrected(found.judged(tests), _TRUST * n_classes)
            found = replace(found, error=(found.error + self.error) / 2)  # its own classes do not show what other ones are like
        return replace(found, n_classes=n_classes)

    def taught(self, lessons: Sequence[Lesson], weight: float, strength: float = _STRENGTH) -> PairModel:
        """Pairs and merges learned from these lessons, which together weigh this much."""
        pairs = self.pairs.fitted(Examples.joined([lesson.examples for lesson in lessons], weight), strength)
        found = replace(self, pairs=pairs)
        merges = [some for lesson in lessons if len((some := lesson.merges(found._tree(lesson)[0])).targets)]
        return replace(found, merges=self.merges.fitted(Examples.joined(merges, weight), strength)) if merges else found

    def judged(self, lessons: Sequence[Lesson]) -> list[Examples]:
        """Of every pile: its groups, with their real precision."""
        found = []
        for lesson in lessons:
            tree, probability = self._tree(lesson)
            scores = self._scores(lesson.listed, lesson.features)
            groups, features = group_features(scores, tree, probability, cut := best_cut(tree, probability))
            if len(groups):
                precision = lesson.precision(cut.roots[tree.leaves], groups)
                found.append(Examples(features, precision, tree.sizes[groups] / tree.sizes[groups].sum()))
        return found

    def corrected(self, tests: Sequence[Examples], weight: float, strength: float = _STRENGTH) -> PairModel:
        """Promises corrected by these tests, if any of them has a group."""
        if not tests:
            return self
        groups = self.groups.fitted(Examples.joined(tests, weight), strength)
        errors = []
        for features, real, _ in tests:
            n_pairs = np.exp(features[:, 1])
            n_pairs *= n_pairs - 1
            expected, true = (float(n_pairs @ each / n_pairs.sum()) for each in (expit(groups.log_odds(features)), real))
            errors.append(abs(logit(np.clip(expected, 0.01, 0.99)) - logit(np.clip(true, 0.01, 0.99))))
        return replace(self, groups=groups, error=float(np.quantile(errors, 0.9)))

    def _tree(self, lesson: Lesson) -> tuple[PairTree, NDArray[np.float64]]:
        return self.tree(self._scores(lesson.listed, lesson.features), Links.parse(None, None, len(lesson.classes)))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a JSON file."""
        parts = {name: getattr(self, name).as_dict(features) for name, features in _NAMES.items()}
        return {"format": FORMAT, "n_classes": self.n_classes, "error": self.error, **parts}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> PairModel:
        """What :meth:`as_dict` gave."""
        found = record.get("format") if isinstance(record, Mapping) else None
        if found != FORMAT:
            raise ValueError(f"a stored pair model must have format {FORMAT}; got {found!r}: calibrate again")
        try:
            parts = {name: Linear.from_dict(record[name], features) for name, features in _NAMES.items()}
            error, n_classes = float(record["error"]), record["n_classes"]
            if not (np.isfinite(error) and error >= 0 and isinstance(n_classes, int) and n_classes >= 0):
                raise ValueError(f"its error is {error}, its number of classes {n_classes!r}")
        except (KeyError, TypeError, AttributeError, ValueError) as problem:
            raise ValueError(f"a stored pair model is damaged ({problem}): calibrate again") from problem
        return cls(**parts, error=error, n_classes=n_classes)


def calibrate(vectors: ArrayLike, labels: ArrayLike, *, seed: int = 0) -> PairModel:
    """What labeled classes that were not trained on teach about these vectors: the packaged model, fitted to them.

    `vectors` (n, d) are compared by their directions; of the classes in `labels` (n,) two or more have two images or more. Few
    classes change little.
    """
    return PairModel.packaged().fit(vectors, labels, seed=seed)
