"""Many points, and their contraction: groups of points that move together become the points of a smaller problem.

Must-linked points are such groups, and so are the clusters of a finer clustering. The cost of group g at group h is the sum of
its members' costs at h's representative. A sparse problem holds some of these costs, as lists that the search walks along.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, eye_array  # type: ignore[import-untyped]

from facetric.clustering.kmeans import TwoNearest, two_nearest, two_nearest_in_reach
from facetric.clustering.knn import cost_of_square, in_blocks, neighbor_graph, pair_cost
from facetric.clustering.state import Dense, Sparse, unserved_cost
from facetric.progress import Progress

_ROWS = 512  # points of a matrix product


@dataclass(frozen=True, eq=False)
class Cloud:
    """Weighted vectors with the symmetric graph of their nearest neighbors."""

    vectors: NDArray[np.float32]
    weights: NDArray[np.float64]
    graph: Sparse
    n_neighbors: int
    kind: int

    @classmethod
    def of(
        cls,
        vectors: NDArray[np.float32],
        weights: NDArray[np.float64],
        n_neighbors: int,
        kind: int,
        progress: Progress | None = None,
    ) -> Cloud:
        graph = neighbor_graph(vectors, n_neighbors, kind, progress=progress)
        lists = sparse_problem(symmetric_graph(graph), np.zeros(len(vectors)))
        return cls(vectors, weights, lists, n_neighbors, kind)

    def two_nearest(self, medoids: NDArray[np.int64], labels: NDArray[np.int64]) -> TwoNearest:
        """The two best medoids within every point's reach; points that reach none look at all of them."""
        centers = self.vectors[medoids]
        lists = self.graph.client_first, self.graph.facilities
        found = two_nearest_in_reach(self.vectors, centers, labels, *lists, self.kind)
        if len(lost := np.flatnonzero(found.near < 0)):
            for array, values in zip(found, two_nearest(self.vectors[lost], centers, self.kind), strict=True):
                array[lost] = values
        return found


@dataclass(frozen=True, eq=False)
class Groups:
    """A partition of n points, each part with a representative."""

    codes: NDArray[np.int64]  # (n,) the group of every point
    representatives: NDArray[np.int64]  # (m,) a point of each group
    members: NDArray[np.int64]  # (n,) points, group by group, in order
    first: NDArray[np.int64]  # (m + 1,) where a group's members start

    @classmethod
    def of(cls, codes: NDArray[np.int64], representatives: NDArray[np.int64] | None = None) -> Groups:
        """The parts of equal codes, represented by these points or by their lowest."""
        if representatives is None:
            representatives = np.unique(codes, return_index=True)[1]
        first = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=len(representatives)))])
        return cls(codes, representatives, np.argsort(codes, kind="stable"), first)

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.diff(self.first)


def dense_groups(costs: NDArray[np.floating], codes: NDArray[np.int64]) -> tuple[Groups, NDArray[np.float64]]:
    """The groups with the member as representative that costs the others least, and their costs (m, m), facility × client."""
    groups = Groups.of(codes)
    representatives = groups.representatives.copy()
    for group in np.flatnonzero(groups.sizes > 1):
        members = groups.members[groups.first[group] : groups.first[group + 1]]
        representatives[group] = members[costs[np.ix_(members, members)].sum(axis=1, dtype=np.float64).argmin()]
    sums = np.add.reduceat(costs[representatives][:, groups.members], groups.first[:-1], axis=1, dtype=np.float64)
    return Groups.of(codes, representatives), sums


def sparse_group_problem(cloud: Cloud, groups: Groups, pattern: csr_array, opening_cost: float | None) -> Sparse:
    """The costs of every group at the groups of its row of `pattern`, exactly, from the vectors of its members.

    Caps: the opening cost and what a group pays at its own representative; without one, more than any cost.
    """
    first, facilities = pattern.indptr.astype(np.int64), pattern.indices.astype(np.int32)
    values = np.empty(len(facilities), dtype=np.float64)

    def add_up(rows: slice) -> None:
        lists = groups.members, groups.first, groups.representatives, first, facilities
        _add_up(cloud.vectors, cloud.weights, *lists, rows.start, rows.stop, cloud.kind, values)

    in_blocks(add_up, len(groups.representatives))
    costs = csr_array((values, facilities, first), shape=pattern.shape)
    own = costs.diagonal().astype(np.float32).astype(np.float64)  # as the search sees them
    caps = np.full(len(own), unserved_cost(values)) if opening_cost is None else opening_cost + own
    return sparse_problem(costs, caps, symmetric=False)


def all_group_costs(cloud: Cloud, groups: Groups) -> NDArray[np.float64]:
    """The costs of every group at every group, (m, m) facility × client, from float32 products."""
    centers = cloud.vectors[groups.representatives]
    shift = centers.mean(axis=0)
    right = np.ascontiguousarray((centers - shift).T)
    squares = np.einsum("dm,dm->m", right, right)
    costs = np.zeros((len(centers), len(centers)))

    def add_up(block: slice) -> None:  # groups of one block
        for start in range(groups.first[block.start], groups.first[block.stop], _ROWS):
            rows = groups.members[start : min(start + _ROWS, groups.first[block.stop])]
            points, weights = cloud.vectors[rows] - shift, cloud.weights[rows]
            lists = groups.codes[rows], groups.representatives, rows
            _add_products(points @ right, points, weights, squares, *lists, cloud.kind, costs)

    in_blocks(add_up, len(centers), block_size=64)
    return np.ascontiguousarray(costs.T)


def contracted_pattern(graph: Sparse, codes: NDArray[np.int64]) -> csr_array:
    """Which groups have an edge between any two of their members; every group has one to itself."""
    m = int(codes.max()) + 1
    clients = np.repeat(codes, np.diff(graph.client_first))
    return csr_array(coo_array((np.ones(len(clients), dtype=np.int8), (clients, codes[graph.facilities])), shape=(m, m)))


def dense_problem(costs: NDArray[np.floating], opening_cost: float | NDArray[np.float64] | None) -> Dense:
    """All costs, (m, m) facility × client, with caps as in :func:`sparse_group_problem`."""
    own = np.diagonal(costs).astype(np.float64)
    return Dense(costs, np.full(len(costs), unserved_cost(costs)) if opening_cost is None else opening_cost + own)


def symmetric_graph(graph: csr_array) -> csr_array:
    """Every edge in both directions, which cost the same, and an edge of cost 0 from every point to itself."""
    n_edges = len(graph.data)  # their numbers are joined instead of their costs: sparse arrays forget zeros
    forward = csr_array((np.arange(1, n_edges + 1), graph.indices, graph.indptr), shape=graph.shape)
    forward.sort_indices()
    loops = csr_array((n_edges + 1) * eye_array(graph.shape[0], dtype=np.int64, format="csr"))
    both = forward.maximum(csr_array(forward.T)).maximum(loops)
    return csr_array((np.append(graph.data, np.float32(0))[both.data - 1], both.indices, both.indptr), shape=graph.shape)


def sparse_problem(by_client: csr_array, caps: NDArray[np.float64], *, symmetric: bool = True) -> Sparse:
    """The problem whose row i holds the costs of client i at the facilities it can reach."""
    first = by_client.indptr.astype(np.int64)
    facilities, costs = by_client.indices.astype(np.int32), by_client.data.astype(np.float32)
    _sort_rows(first, facilities, costs)
    if symmetric:
        return Sparse(first, facilities, costs, first, facilities, costs, caps)
    other = csr_array(csr_array((costs, facilities, first), shape=by_client.shape).T)
    by_facility = other.indptr.astype(np.int64), other.indices.astype(np.int32), other.data
    return Sparse(*by_facility, first, facilities, costs, caps)


@njit(cache=True, nogil=True)
def _add_products(
    products: NDArray[np.float32],
    points: NDArray[np.float32],
    weights: NDArray[np.float64],
    squares: NDArray[np.float32],
    clients: NDArray[np.int64],
    representatives: NDArray[np.int64],
    rows: NDArray[np.int64],
    kind: int,
    costs: NDArray[np.float64],
) -> None:
    """Add what every row pays at every representative to its group's row of costs, client × facility."""
    for row in range(len(products)):
        own = 0.0
        for x in points[row]:
            own += np.float64(x) * np.float64(x)
        for facility in range(len(squares)):
            if representatives[facility] != rows[row]:
                square = max(own + squares[facility] - 2.0 * products[row, facility], 0.0)
                costs[clients[row], facility] += weights[row] * cost_of_square(square, kind)


@njit(cache=True, nogil=True)
def _add_up(
    vectors: NDArray[np.float32],
    weights: NDArray[np.float64],
    members: NDArray[np.int64],
    first_member: NDArray[np.int64],
    representatives: NDArray[np.int64],
    first: NDArray[np.int64],
    facilities: NDArray[np.int32],
    start: int,
    stop: int,
    kind: int,
    costs: NDArray[np.float64],
) -> None:
    for group in range(start, stop):
        for position in range(first[group], first[group + 1]):
            center = vectors[representatives[facilities[position]]]
            total = 0.0
            for member in range(first_member[group], first_member[group + 1]):
                total += weights[members[member]] * pair_cost(vectors[members[member]], center, kind)
            costs[position] = total


@njit(cache=True, nogil=True)
def _sort_rows(first: NDArray[np.int64], columns: NDArray[np.int32], costs: NDArray[np.float32]) -> None:
    """Every row by cost; equal costs by column."""
    for row in range(len(first) - 1):
        start, stop = first[row], first[row + 1]
        by_column = np.argsort(columns[start:stop])
        row_columns, row_costs = columns[start:stop][by_column], costs[start:stop][by_column]
        order = np.argsort(row_costs, kind="mergesort")
        columns[start:stop], costs[start:stop] = row_columns[order], row_costs[order]
