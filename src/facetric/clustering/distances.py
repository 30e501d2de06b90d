"""Costs of vectors: Euclidean or cosine distances, or their squares, in blocks of matrix products."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

Metric = Literal["euclidean", "cosine", "precomputed"]
_BLOCK_SIZE = 512


def dense_costs(vectors: NDArray[np.float32], *, cosine: bool, squared: bool) -> NDArray[np.float32]:
    """The cost of every pair, (n, n): float64 products, so that near duplicates keep their distance; equal points cost 0."""
    points = vectors.astype(np.float64)
    points -= points.mean(axis=0)  # no distance changes, and less cancels
    squares = np.einsum("nd,nd->n", points, points)
    costs = np.empty((len(points), len(points)), dtype=np.float32)
    for start in range(0, len(points), _BLOCK_SIZE):
        block = points[start : start + _BLOCK_SIZE]
        _finish_block(block @ points.T, squares, start, cosine, squared, costs)
    return costs


def prepared(X: NDArray[np.floating], shift: NDArray[np.float64], *, cosine: bool) -> NDArray[np.float32]:
    """Vectors as distances compare them: around a point such as their mean, for cosine of length one; float32."""
    vectors = X.astype(np.float64) - shift
    if cosine:
        lengths = np.linalg.norm(vectors, axis=1)
        if not lengths.all():
            raise ValueError(
                f"vector {int(lengths.argmin())} is zero and has no direction: remove it, or compare with metric='euclidean'"
            )
        vectors /= lengths[:, None]
    largest = float(np.abs(vectors).max())
    if largest > 1e18:  # its square leaves float32
        raise ValueError(f"vectors must lie within 1e18 of their mean; got {largest:.3g}: scale them down")
    return np.ascontiguousarray(vectors, dtype=np.float32)


@njit(cache=True, nogil=True)
def cost_of_square(square: float, cosine: bool, squared: bool) -> float:
    """The cost at a squared Euclidean distance; cosine: of unit vectors, 1 − x·y = ‖x − y‖² / 2."""
    if cosine:
        return (0.5 * square) ** 2 if squared else 0.5 * square
    return square if squared else np.sqrt(square)


@njit(cache=True, nogil=True)
def _finish_block(
    products: NDArray[np.float64],
    squares: NDArray[np.float64],
    start: int,
    cosine: bool,
    squared: bool,
    costs: NDArray[np.float32],
) -> None:
    for row in range(len(products)):
        i = start + row
        for j in range(len(squares)):
            together = squares[i] + squares[j]
            square = together - 2.0 * products[row, j]
            if i == j or square < 1e-13 * together:  # below the rounding of the product: the same point
                square = 0.0
            costs[i, j] = cost_of_square(square, cosine, squared)


@njit(cache=True, nogil=True, fastmath={"reassoc"})  # a sum of squares in vector registers: five times as fast
def pair_cost(x: NDArray[np.float32], y: NDArray[np.float32], cosine: bool, squared: bool) -> float:
    """The cost of one pair, from differences: exact for duplicates."""
    square = 0.0
    for i in range(len(x)):
        difference = np.float64(x[i]) - np.float64(y[i])
        square += difference * difference
    return cost_of_square(square, cosine, squared)
