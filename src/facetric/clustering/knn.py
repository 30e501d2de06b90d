"""Costs of vectors (Euclidean or cosine distances, or their squares), and the nearest neighbors of every point.

Neighbors are found in blocks of matrix products: exactly, or by a partition when there are very many points. The products are
float32 and only choose; the costs of the chosen are computed from differences, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array  # type: ignore[import-untyped]

from facetric.machine import blas_threads, numba_threads
from facetric.metrics import unit_rows
from facetric.metrics.kernels import keep_nearest, nearest_keys
from facetric.progress import Progress

Metric = Literal["euclidean", "cosine", "precomputed"]
EUCLIDEAN, SQUARED, COSINE, SQUARED_COSINE = range(4)  # kinds of costs: a metric, and after it its square
MAX_EXACT = 100_000  # points; beyond, neighbors are looked for in the nearest cells of a partition
N_PROBES = 24  # cells looked at per point
_POINTS_PER_CELL = 100
_BLOCK_SIZE = 512


def dense_costs(vectors: NDArray[np.float32], kind: int) -> NDArray[np.float32]:
    """The cost of every pair, (n, n): float64 products, so that near duplicates keep their distance; equal points cost 0."""
    points = vectors.astype(np.float64)
    points -= points.mean(axis=0)  # no distance changes, and less cancels
    squares = np.einsum("nd,nd->n", points, points)
    costs = np.empty((len(points), len(points)), dtype=np.float32)
    for start in range(0, len(points), _BLOCK_SIZE):
        block = points[start : start + _BLOCK_SIZE]
        _finish_block(block @ points.T, squares, start, kind, costs)
    return costs


def prepared(X: NDArray[np.floating], shift: NDArray[np.float64], *, cosine: bool) -> NDArray[np.float32]:
    """Vectors as distances compare them: around a point such as their mean, for cosine of length one; float32."""
    vectors = X.astype(np.float64) - shift
    if cosine:
        vectors = unit_rows(vectors)
        if not (usable := vectors.any(axis=1)).all():
            raise ValueError(
                f"vector {int(usable.argmin())} is zero and has no direction: remove it, or compare with metric='euclidean'"
            )
    largest = float(np.abs(vectors).max())
    if largest > 1e18:  # its square leaves float32
        raise ValueError(f"vectors must lie within 1e18 of their mean; got {largest:.3g}: scale them down")
    return np.ascontiguousarray(vectors, dtype=np.float32)


def check_distance(name: str, value: Any) -> None:
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not (is_number and math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number above 0; got {value!r}: pass a distance")


def check_options(metric: str, metrics: tuple[str, ...], **counts: Any) -> None:
    """Of an estimator: its metric, and options that are whole numbers."""
    if metric not in metrics:
        raise ValueError(f"metric must be one of {', '.join(metrics)}; got {metric!r}: choose one of these")
    for name, value in counts.items():
        if not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1; got {value!r}: raise it")


def checked_weights(sample_weight: Any, n: int) -> NDArray[np.float64]:
    """One number above 0 per row; ones by default. A row that does not count has no cluster."""
    weights = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n,) or not ((weights > 0) & np.isfinite(weights)).all():
        raise ValueError(
            f"sample_weight must be {n} finite numbers above 0; got {weights.shape}, {weights.min():g} to {weights.max():g}: "
            "leave out rows of weight zero"
        )
    return weights


def checked_number(n_clusters: Any, n: int, n_groups: int) -> int:
    """n_clusters, if there can be so many of n points in n_groups."""
    if not isinstance(n_clusters, int | np.integer) or not 1 <= n_clusters <= n:
        raise ValueError(
            f"n_clusters ({n_clusters}) must be an integer between 1 and the number of points ({n}): change it (--clusters)"
        )
    if n_clusters > n_groups:
        raise ValueError(
            f"n_clusters ({n_clusters}) exceeds the {n_groups} groups that must_link leaves: lower it, or remove links"
        )
    return int(n_clusters)


@njit(cache=True, nogil=True)
def cost_of_square(square: float, kind: int) -> float:
    """The cost at a squared Euclidean distance; cosine: of unit vectors, 1 − x·y = ‖x − y‖² / 2."""
    if kind == EUCLIDEAN:
        return np.sqrt(square)  # type: ignore[no-any-return]
    if kind == SQUARED:
        return square
    return 0.5 * square if kind == COSINE else 0.25 * square * square


@njit(cache=True, nogil=True)
def _finish_block(
    products: NDArray[np.float64], squares: NDArray[np.float64], start: int, kind: int, costs: NDArray[np.float32]
) -> None:
    for row in range(len(products)):
        i = start + row
        for j in range(len(squares)):
            together = squares[i] + squares[j]
            square = together - 2.0 * products[row, j]
            if i == j or square < 1e-13 * together:  # below the rounding of the product: the same point
                square = 0.0
            costs[i, j] = cost_of_square(square, kind)


@njit(cache=True, nogil=True, fastmath={"reassoc"})  # a sum of squares in vector registers: five times as fast
def pair_cost(x: NDArray[np.float32], y: NDArray[np.float32], kind: int) -> float:
    """The cost of one pair, from differences: exact for duplicates."""
    square = 0.0
    for i in range(len(x)):
        difference = np.float64(x[i]) - np.float64(y[i])
        square += difference * difference
    return cost_of_square(square, kind)


def neighbor_graph(
    vectors: NDArray[np.float32],
    n_neighbors: int,
    kind: int,
    *,
    offsets: NDArray[np.float64] | None = None,
    max_exact: int = MAX_EXACT,
    progress: Progress | None = None,
) -> csr_array:
    """A sparse (n, n) array of the costs to the n_neighbors nearest points of every point, not counting itself.

    `offsets` (n,) are added to the squared distance to a point when the nearest are chosen, not to the costs.
    """
    n = len(vectors)
    k = min(n_neighbors, n - 1)
    centered = vectors - vectors.mean(axis=0)
    chosen = np.full((n, k), -1, dtype=np.int32)
    run = _exact if n <= max_exact else _by_cells
    squares = np.einsum("nd,nd->n", centered, centered)
    keys = squares if offsets is None else squares + offsets.astype(np.float32)
    run(centered, keys, chosen, np.full((n, k), np.inf, dtype=np.float32), progress)
    costs = np.empty((n, k), dtype=np.float32)
    fill_costs(vectors, chosen, kind, costs)
    found = chosen >= 0
    return csr_array((costs[found], chosen[found], np.concatenate([[0], np.cumsum(found.sum(axis=1))])), shape=(n, n))


def fill_costs(vectors: NDArray[np.float32], chosen: NDArray[np.int32], kind: int, costs: NDArray[np.floating]) -> None:
    """What every point pays at each of the points that it has chosen, (n, k); −1 is none."""
    in_blocks(lambda rows: _exact_costs(vectors, rows.start, chosen[rows], costs[rows], kind), len(chosen))


def in_blocks(
    function: Callable[[slice], None],
    n: int,
    block_size: int = _BLOCK_SIZE,
    *,
    alone: bool = False,
    progress: Progress | None = None,
) -> None:
    """Call the function with consecutive slices of n rows, in threads; it must write to its own rows only.

    `alone`: without threads, for work that takes less than their start.
    """
    # A block per thread and one BLAS thread each: threads that share a product wait for each other, block after block.
    blocks = [slice(start, min(start + block_size, n)) for start in range(0, n, block_size)]
    with blas_threads(1), ThreadPoolExecutor(numba_threads(), "facetric-clustering") as pool:
        for n_done, _ in enumerate((map if alone else pool.map)(function, blocks), start=1):
            if progress is not None:
                progress("Neighbors", n_done, len(blocks))


def _exact(
    vectors: NDArray[np.float32],
    squares: NDArray[np.float32],
    chosen: NDArray[np.int32],
    keys: NDArray[np.float32],
    progress: Progress | None,
) -> None:
    """Every point against all points, tile by tile."""
    everyone = slice(0, len(vectors))

    def search(rows: slice) -> None:
        own = np.arange(rows.start, rows.stop)
        chosen[rows], keys[rows] = nearest_keys(-2 * vectors[rows], vectors, squares, own, keys.shape[1], everyone)

    in_blocks(search, len(vectors), progress=progress)


def _by_cells(
    vectors: NDArray[np.float32],
    squares: NDArray[np.float32],
    chosen: NDArray[np.int32],
    keys: NDArray[np.float32],
    progress: Progress | None,
) -> None:
    """Every point against the points of the cells whose centers are nearest to it."""
    centers = _cell_centers(vectors)
    probes = np.empty((len(vectors), min(N_PROBES, len(centers))), dtype=np.int32)
    in_blocks(lambda rows: _nearest_cells(vectors, centers, rows, probes), len(vectors))
    members = np.argsort(probes[:, 0], kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(probes[:, 0], minlength=len(centers)))])

    def search(cell: slice) -> None:
        end = first[cell.stop]
        for start in range(first[cell.start], end, _BLOCK_SIZE):
            queries = members[start : min(start + _BLOCK_SIZE, end)]
            left, own = -2 * vectors[queries], probes[queries]
            for other in np.unique(own):
                asking = (own == other).any(axis=1)
                points = members[first[other] : first[other + 1]]
                products, rows = left[asking] @ vectors[points].T, queries[asking]
                keep_nearest(products, squares[points], points, rows, rows, chosen, keys)

    in_blocks(search, len(centers), 1, progress=progress)


def _cell_centers(vectors: NDArray[np.float32], n_rounds: int = 5) -> NDArray[np.float32]:
    """A few rounds of k-means on every few points; deterministic."""
    n_cells = max(1, len(vectors) // _POINTS_PER_CELL)
    sample = vectors[:: max(1, len(vectors) // (16 * n_cells))]
    centers = sample[np.linspace(0, len(sample) - 1, n_cells).astype(np.int64)].copy()
    nearest = np.empty((len(sample), 1), dtype=np.int32)
    for _ in range(n_rounds):
        in_blocks(lambda rows: _nearest_cells(sample, centers, rows, nearest), len(sample))
        sums, sizes = np.zeros(centers.shape), np.bincount(nearest[:, 0], minlength=n_cells)
        np.add.at(sums, nearest[:, 0], sample)
        centers[sizes > 0] = (sums[sizes > 0] / sizes[sizes > 0, None]).astype(np.float32)
    return centers


def _nearest_cells(vectors: NDArray[np.float32], centers: NDArray[np.float32], rows: slice, nearest: NDArray[np.int32]) -> None:
    keys = vectors[rows] @ (-2 * centers.T) + np.einsum("nd,nd->n", centers, centers)
    n_kept = nearest.shape[1]
    if n_kept == 1:
        nearest[rows, 0] = keys.argmin(axis=1)
        return
    found = np.argpartition(keys, n_kept - 1, axis=1)[:, :n_kept] if n_kept < keys.shape[1] else np.argsort(keys, axis=1)
    order = np.argsort(np.take_along_axis(keys, found, axis=1), axis=1, kind="stable")
    nearest[rows] = np.take_along_axis(found, order, axis=1)


@njit(cache=True, nogil=True)
def _exact_costs(
    vectors: NDArray[np.float32], start: int, chosen: NDArray[np.int32], costs: NDArray[np.float32], kind: int
) -> None:
    for row in range(len(chosen)):
        for position in range(chosen.shape[1]):
            other = chosen[row, position]
            if other >= 0:
                costs[row, position] = pair_cost(vectors[start + row], vectors[other], kind)
