"""Corrections by a person: pairs that must, or must not, share a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array  # type: ignore[import-untyped]
from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]

from facetric.clustering.medoids import Medoids, solve
from facetric.clustering.state import Dense, Problem

_MAX_ROUNDS = 50  # searches after which conflicts are settled where the medoids are


@dataclass(frozen=True, eq=False)
class Links:
    """Checked links of n points: must-linked points share a code, and no cannot-linked pair does."""

    codes: NDArray[np.int64]  # (n,) in order of first appearance of a group
    cannot: NDArray[np.int64]  # (n_pairs, 2) points

    @classmethod
    def parse(cls, must_link: ArrayLike | None, cannot_link: ArrayLike | None, n: int) -> Links:
        must, cannot = _pairs(must_link, "must_link", n), _pairs(cannot_link, "cannot_link", n)
        graph = coo_array((np.ones(len(must)), (must[:, 0], must[:, 1])), shape=(n, n))
        components = connected_components(graph, directed=False)[1]
        first = np.unique(components, return_index=True)[1]
        codes = np.argsort(np.argsort(first))[components]
        broken = np.flatnonzero(codes[cannot[:, 0]] == codes[cannot[:, 1]])
        if len(broken):
            a, b = cannot[broken[0]]
            same = "a point cannot be apart from itself" if a == b else "must_link joins them, directly or through others"
            raise ValueError(
                f"links contradict each other: cannot_link separates {a} and {b}, but {same}: remove one of the links"
            )
        return cls(codes.astype(np.int64), cannot)

    @property
    def n_groups(self) -> int:
        return int(self.codes.max()) + 1

    @property
    def joins(self) -> bool:
        """Whether any points must move together."""
        return self.n_groups < len(self.codes)

    @property
    def linked(self) -> NDArray[np.bool_]:
        """The points that have a link of either kind."""
        linked = np.bincount(self.codes)[self.codes] > 1
        linked[self.cannot.ravel()] = True
        return linked

    def cannot_between(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The cannot-linked pairs as pairs of groups, distinct."""
        pairs = np.sort(codes[self.cannot], axis=1).reshape(-1, 2)
        return np.unique(pairs, axis=0)


def _pairs(links: ArrayLike | None, name: str, n: int) -> NDArray[np.int64]:
    pairs = np.asarray([] if links is None else links)
    if pairs.size == 0:
        return np.empty((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must be pairs of point indices, shape (n_pairs, 2); got {pairs.dtype} {pairs.shape}: pass integers"
        )
    if pairs.min() < 0 or pairs.max() >= n:
        wrong = int(pairs.min() if pairs.min() < 0 else pairs.max())
        raise ValueError(f"{name} must name points between 0 and {n - 1}; got {wrong}: pass row numbers of X")
    return pairs.astype(np.int64)


def solve_apart(
    problem: Problem,
    cannot: NDArray[np.int64],
    *,
    n_clusters: int | None = None,
    opening_cost: float | None = None,
    start: NDArray[np.int64] | None = None,
    recreated: Sequence[float] = (),
    max_sweeps: int = 100,
) -> Medoids:
    """:func:`solve` such that no pair of `cannot` shares a medoid. The costs of the problem are changed where they forbid.

    Neither of a pair may serve the other. Where both have the same third medoid, the one that loses less by leaving is forbidden
    to use it, and the search goes on from there.
    """
    found = solve(
        problem, n_clusters=n_clusters, opening_cost=opening_cost, start=start, recreated=recreated, max_sweeps=max_sweeps
    )
    if not len(cannot):
        return found
    for a, b in cannot:
        _forbid(problem, facility=a, client=b)
        _forbid(problem, facility=b, client=a)
    n_rounds = 0
    while True:
        sweeps = max_sweeps if n_rounds < _MAX_ROUNDS else 0
        found = solve(problem, n_clusters=n_clusters, opening_cost=opening_cost, start=found.medoids, max_sweeps=sweeps)
        together = cannot[(found.near[cannot[:, 0]] == found.near[cannot[:, 1]]) & (found.near[cannot[:, 0]] >= 0)]
        if not len(together):
            return found
        for a, b in together:
            regret = found.second_costs - found.near_costs
            leaving = a if regret[a] < regret[b] or found.near[b] == b else b
            _forbid(problem, facility=found.near[leaving], client=leaving)
        n_rounds += 1


def _forbid(problem: Problem, *, facility: int, client: int) -> None:
    if isinstance(problem, Dense):
        problem.costs[facility, client] = np.inf
        return
    sides = (
        (problem.facility_first, problem.clients, problem.facility_costs, facility, client),
        (problem.client_first, problem.facilities, problem.client_costs, client, facility),
    )
    for first, others, costs, row, other in sides:
        row_slice = slice(first[row], first[row + 1])
        costs[row_slice][others[row_slice] == other] = np.inf
