"""Vectors to groups that keep to what was decided, with the questions worth asking next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array  # type: ignore[import-untyped]

from facetric.clustering import AverageLinkage, FacilityLocation
from facetric.photos.decisions import Constraints, joined
from facetric.progress import Progress

_BLOCK = 512  # groups whose distances to all others are held at a time


@dataclass(frozen=True)
class Question:
    """Do these two photos belong together? `ambiguity` is near 1 where the clustering could as well have decided otherwise."""

    first: int
    second: int
    ambiguity: float


@dataclass(frozen=True, eq=False)
class Grouping:
    """The groups of n points, the largest first."""

    labels: NDArray[np.int64]  # (n,) −1 for rejected points
    medoids: NDArray[np.int64]  # (n_groups,) the member nearest to the mean of each group
    ambiguity: NDArray[np.float64]  # (n,)
    names: Mapping[int, str]  # of groups that have one
    questions: tuple[Question, ...]  # the most ambiguous first, about two groups and about a member in turn


def grouped(
    vectors: NDArray[np.float32],
    clusterer: AverageLinkage | FacilityLocation,
    constraints: Constraints,
    *,
    progress: Progress | None = None,
) -> Grouping:
    """Cluster the points (n, d) that were not rejected, and say where a person should look."""
    used = np.array([i for i in range(len(vectors)) if i not in constraints.rejected], dtype=np.int64)
    labels, ambiguity = np.full(len(vectors), -1), np.zeros(len(vectors))
    place = {point: row for row, point in enumerate(used.tolist())}
    must, cannot = ([(place[a], place[b]) for a, b in pairs] for pairs in (constraints.must_link, constraints.cannot_link))
    if len(used):
        if must and getattr(clusterer, "n_clusters", None) is None:  # else followers could leave fewer groups than asked for
            clusterer.fit(vectors[used], must_link=[], cannot_link=cannot, progress=progress)
            must += _followers(clusterer.labels_, must, cannot)
        clusterer.fit(vectors[used], must_link=must, cannot_link=cannot, progress=progress)
        labels[used], ambiguity[used] = _largest_first(clusterer.labels_), clusterer.ambiguity_
    means, spreads, medoids = _summaries(vectors, labels)
    names = {int(labels[point]): name for point, name in constraints.names.items()}
    known = joined(constraints.must_link, len(labels))  # nothing is asked that was decided
    own = [(point, int(medoids[labels[point]])) for point in used.tolist()]
    members = _most_ambiguous_first(Question(a, b, float(ambiguity[a])) for a, b in own if known[a] != known[b])
    pairs = _most_ambiguous_first(_about_groups(labels, means, spreads, medoids, constraints))
    questions = (question for both in zip_longest(pairs, members) for question in both if question is not None)
    return Grouping(labels, medoids, ambiguity, names, tuple(questions))


def _followers(
    labels: NDArray[np.int64], must: Sequence[tuple[int, int]], cannot: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Links for points that nothing was decided about: with those that they are clustered with when nothing must be together.

    Photos that look different and were joined are far apart on average, and no other would be near to all of them. A new photo
    joins them when it is like some of them, if these are of one group.
    """
    parts = joined(must, len(labels))
    decided = np.zeros(len(labels), dtype=np.bool_)
    decided[[point for pair in (*must, *cannot) for point in pair]] = True
    leaders: dict[int, set[int]] = {}
    for point in np.flatnonzero(decided).tolist():
        leaders.setdefault(int(labels[point]), set()).add(int(parts[point]))
    first = np.unique(parts, return_index=True)[1]
    sizes = np.bincount(parts)
    found = []
    for point in np.flatnonzero(~decided).tolist():
        part = leaders.get(int(labels[point]), set())
        if len(part) == 1 and sizes[leader := next(iter(part))] > 1:
            found.append((int(first[leader]), point))
    return found


def _most_ambiguous_first(questions: Iterator[Question]) -> list[Question]:
    return sorted(questions, key=lambda question: (-question.ambiguity, question.first, question.second))


def _largest_first(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same groups, numbered by size; ties by the first point."""
    _, first, inverse, sizes = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -sizes))
    numbers: NDArray[np.int64] = np.argsort(order)[inverse]
    return numbers


def _summaries(
    vectors: NDArray[np.float32], labels: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Mean, mean squared distance to it, and nearest member of every group."""
    rows = np.flatnonzero(labels >= 0)
    own, n_groups = labels[rows], int(labels.max(initial=-1)) + 1
    sizes = np.bincount(own, minlength=n_groups)
    member = coo_array((1 / sizes[own], (own, np.arange(len(rows)))), shape=(n_groups, len(rows))).tocsr()
    means = member @ vectors[rows].astype(np.float64)
    squares = np.square(vectors[rows] - means[own]).sum(axis=1)
    order = np.lexsort((squares, own))
    medoids = rows[order[np.searchsorted(own[order], np.arange(n_groups))]]
    return means, member @ squares, medoids


def _about_groups(
    labels: NDArray[np.int64],
    means: NDArray[np.float64],
    spreads: NDArray[np.float64],
    medoids: NDArray[np.int64],
    constraints: Constraints,
) -> Iterator[Question]:
    """Is a group the same as the nearest one that it may join? The largest mean distance inside a group says how near is near."""
    n_groups = len(medoids)
    limit = 2 * float(spreads.max(initial=0.0))
    apart: dict[int, list[int]] = {}
    for a, b in constraints.cannot_link:
        apart.setdefault(int(labels[a]), []).append(int(labels[b]))
        apart.setdefault(int(labels[b]), []).append(int(labels[a]))
    squares = np.square(means).sum(axis=1) + spreads
    asked = set()
    for start in range(0, n_groups, _BLOCK):
        links = squares[start : start + _BLOCK, None] + squares - 2 * means[start : start + _BLOCK] @ means.T
        for row, group in enumerate(range(start, min(start + _BLOCK, n_groups))):
            links[row, [group, *apart.get(group, [])]] = np.inf
            other = int(links[row].argmin())
            pair = min(group, other), max(group, other)
            if np.isfinite(links[row, other]) and pair not in asked:
                asked.add(pair)
                ambiguity = np.sqrt(min(1.0, limit / max(links[row, other], 1e-12)))
                yield Question(int(medoids[pair[1]]), int(medoids[pair[0]]), float(ambiguity))
