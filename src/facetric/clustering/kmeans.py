"""The k-means of the literature: Lloyd's algorithm from random starts, greedy k-means++ (Arthur and Vassilvitskii 2007)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from facetric.clustering.centers import fill_empty_clusters, weighted_means
from facetric.machine import blas_threads, numba_threads

_SINGLE_DRAWS = 2048  # up to this many clusters, initial centers are drawn one by one, each the best of a few
_ROUNDS = 64  # above it, in this many rounds without trials: one by one would take longer than all that follows
_BLOCK_SIZE, _TILE_SIZE = 4096, 512  # points and centers of a product; a task is a block of points
_MAX_ITERATIONS = 100
_TOLERANCE = 1e-4  # k-means stops when an iteration improves the objective by less than this fraction


@dataclass(frozen=True, eq=False)
class KMeans:
    """One k-means clustering."""

    assignment: NDArray[np.int64]  # (n,)
    centers: NDArray[np.float32]  # (n_clusters, d)
    objective: float  # Σ squared distances to the own center
    n_iterations: int


def kmeans(rows: NDArray[np.float32], n_clusters: int, *, seed: int) -> KMeans:
    """Lloyd's algorithm from centers drawn by their squared distance (greedy k-means++; in rounds above 2,048 clusters).

    Points are compared with centers by float32 matrix products, always in the same blocks; a tie keeps its assignment, or goes
    to the first center. An empty cluster takes the point farthest from its center. The same seed gives the same clustering with
    any number of threads.
    """
    if not 1 <= n_clusters <= len(rows):
        raise ValueError(f"n_clusters ({n_clusters}) must lie between 1 and the number of points ({len(rows)}): change it")
    rows = np.ascontiguousarray(rows, dtype=np.float32)
    objective, n_iterations = np.inf, 0
    assignment, squares = np.zeros(len(rows), dtype=np.int64), np.empty(len(rows), dtype=np.float32)
    moved = np.ones(n_clusters, dtype=np.bool_)
    weights, frozen = np.ones(len(rows)), np.zeros(len(rows), dtype=np.bool_)
    with _workers() as pool:
        centers = rows[_initial_centers(rows, n_clusters, np.random.default_rng(seed), pool)]
        while n_iterations < _MAX_ITERATIONS:
            n_iterations += 1
            _assign(rows, centers, moved, squares, assignment, pool)
            before, objective = objective, float(squares.sum(dtype=np.float64))
            fill_empty_clusters(assignment, squares, frozen, n_clusters)
            means = weighted_means(rows, weights, assignment, n_clusters)
            moved, centers = (means != centers).any(axis=1), means
            if not moved.any() or before - objective < _TOLERANCE * objective:
                break
    return KMeans(assignment, centers, _objective(rows, centers, assignment), n_iterations)


@contextmanager
def _workers() -> Iterator[ThreadPoolExecutor]:
    """Threads with one BLAS thread each: those of one product wait for each other, for long on a busy machine."""
    with blas_threads(1), ThreadPoolExecutor(numba_threads(), "facetric-kmeans") as pool:
        yield pool


def _nearest(
    rows: NDArray[np.float32], centers: NDArray[np.float32], pool: ThreadPoolExecutor
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The squared distance of every row to its nearest center, (n,), and which that is, (n,)."""
    norms = np.einsum("kd,kd->k", centers, centers, dtype=np.float64).astype(np.float32)
    factors = np.column_stack([-2 * centers, norms])  # (x, 1)·(−2c, ‖c‖²) = ‖x − c‖² − ‖x‖²
    nearest = np.zeros(len(rows), dtype=np.int64)
    squares = np.empty(len(rows), dtype=np.float32)

    def find(block: slice) -> None:
        if len(centers) > 1:
            nearest[block] = _nearest_in_block(rows[block], factors)
        _squared_distances(rows[block], centers, nearest[block], squares[block])

    list(pool.map(find, (slice(start, start + _BLOCK_SIZE) for start in range(0, len(rows), _BLOCK_SIZE))))
    return squares, nearest


def _nearest_in_block(rows: NDArray[np.float32], factors: NDArray[np.float32]) -> NDArray[np.int64]:
    left = np.column_stack([rows, np.ones(len(rows), dtype=np.float32)])
    best = np.full(len(rows), np.inf, dtype=np.float32)
    nearest = np.zeros(len(rows), dtype=np.int64)
    for first in range(0, len(factors), _TILE_SIZE):
        products = left @ factors[first : first + _TILE_SIZE].T  # (n, tile)
        position = products.argmin(axis=1)
        found = np.take_along_axis(products, position[:, None], axis=1)[:, 0]
        nearer = found < best
        best[nearer], nearest[nearer] = found[nearer], first + position[nearer]
    return nearest


def _assign(
    rows: NDArray[np.float32],
    centers: NDArray[np.float32],
    moved: NDArray[np.bool_],
    squares: NDArray[np.float32],
    assignment: NDArray[np.int64],
    pool: ThreadPoolExecutor,
) -> None:
    """Bring every point's nearest center, and its squared distance, up to date after some centers have moved.

    Where a point's center did not move, only a moved one can be nearer. With many clusters, most soon stop moving.
    """
    unsure = np.flatnonzero(moved[assignment])
    others, movers = np.flatnonzero(~moved[assignment]), np.flatnonzero(moved)
    if len(unsure):
        squares[unsure], assignment[unsure] = _nearest(rows[unsure], centers, pool)
    if len(others) and len(movers):
        found, position = _nearest(rows[others], centers[movers], pool)
        nearer = found < squares[others]
        squares[others[nearer]], assignment[others[nearer]] = found[nearer], movers[position[nearer]]


def _initial_centers(
    rows: NDArray[np.float32], n_clusters: int, rng: np.random.Generator, pool: ThreadPoolExecutor
) -> NDArray[np.int64]:
    """Rows drawn with a probability ∝ their squared distance to the centers so far; distinct."""
    per_round = 1 if n_clusters <= _SINGLE_DRAWS else -(-n_clusters // _ROUNDS)
    n_trials = 2 + int(np.log(n_clusters))  # as scikit-learn
    norms = np.einsum("nd,nd->n", rows, rows)
    chosen = np.array([rng.integers(len(rows))])
    squares = np.full(len(rows), np.inf, dtype=np.float64)
    newest = chosen
    while len(chosen) < n_clusters:
        squares = np.minimum(squares, _nearest(rows, rows[newest], pool)[0])
        squares[chosen] = 0.0
        n_wanted = min(per_round, n_clusters - len(chosen))
        n_distinct = int(np.count_nonzero(squares > 0))
        if n_distinct < n_wanted:  # fewer distinct points than clusters: take any others
            newest = rng.choice(np.setdiff1d(np.arange(len(rows)), chosen), n_wanted, replace=False)
        elif per_round == 1:
            newest = _best_of(_drawn(squares, n_trials, rng), rows, norms, squares)
        else:
            newest = rng.choice(len(rows), n_wanted, replace=False, p=squares / squares.sum())
        chosen = np.concatenate([chosen, newest])
    return chosen


def _drawn(weights: NDArray[np.float64], n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows with a probability ∝ their weight, never one of weight 0."""
    sums = np.cumsum(weights)
    rows = np.searchsorted(sums, rng.random(n) * sums[-1], side="right")
    drawn: NDArray[np.int64] = np.minimum(rows, np.flatnonzero(weights)[-1])
    return drawn


def _best_of(
    trials: NDArray[np.int64], rows: NDArray[np.float32], norms: NDArray[np.float32], squares: NDArray[np.float64]
) -> NDArray[np.int64]:
    """The one that leaves the smallest sum of squared distances, by float32 products; the first of equals. (1,)"""
    left = (-2 * rows[trials]) @ rows.T  # (n_trials, n)
    left += norms
    left += norms[trials, None]
    np.clip(left, 0, squares.astype(np.float32), out=left)
    return trials[[int(left.sum(axis=1, dtype=np.float64).argmin())]]


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _squared_distances(
    rows: NDArray[np.float32], centers: NDArray[np.float32], nearest: NDArray[np.int64], squares: NDArray[np.float32]
) -> None:
    """From the differences: zero for equal points, and the same in whatever block a point stands."""
    for i in range(len(rows)):
        total = np.float32(0)
        for j in range(rows.shape[1]):
            total += (rows[i, j] - centers[nearest[i], j]) ** 2
        squares[i] = total


@njit(cache=True, nogil=True)
def _objective(rows: NDArray[np.float32], centers: NDArray[np.float32], assignment: NDArray[np.int64]) -> float:
    total = 0.0
    for i in range(len(rows)):
        for j in range(rows.shape[1]):
            total += (np.float64(rows[i, j]) - np.float64(centers[assignment[i], j])) ** 2
    return total
