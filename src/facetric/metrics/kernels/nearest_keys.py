"""The nearest rows of each query by float32 products, block by block."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

_TILE_SIZE = 2048  # rows of a product


def nearest_keys(
    left: NDArray[np.float32],
    vectors: NDArray[np.float32],
    squares: NDArray[np.float32],
    own: NDArray[np.int64],
    n_kept: int,
    rows: slice,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Of these rows, those with the lowest left·vector + square for every line of `left`, ascending, never its `own`; −1 and ∞.

    Ids and keys, (m, n_kept) each. In float32: equal vectors may have different keys.
    """
    ids, keys = np.full((len(left), n_kept), -1, np.int32), np.full((len(left), n_kept), np.inf, np.float32)
    lists = np.arange(len(left))
    for first in range(rows.start, rows.stop, _TILE_SIZE):
        tile = slice(first, min(first + _TILE_SIZE, rows.stop))
        keep_nearest(left @ vectors[tile].T, squares[tile], np.arange(first, tile.stop), lists, own, ids, keys)
    return ids, keys


@njit(cache=True, nogil=True)
def keep_nearest(
    products: NDArray[np.float32],
    squares: NDArray[np.float32],
    points: NDArray[np.int64],
    lists: NDArray[np.int64],
    own: NDArray[np.int64],
    ids: NDArray[np.int32],
    keys: NDArray[np.float32],
) -> None:
    """Merge the points of a tile into sorted lists by product + square; equal keys keep the earlier point, `own` has no place."""
    k = keys.shape[1]
    for r in range(len(products)):
        kept_keys, kept_ids = keys[lists[r]], ids[lists[r]]
        for c in range(len(points)):
            key = products[r, c] + squares[c]
            if key < kept_keys[k - 1] and points[c] != own[r]:
                position = k - 1
                while position > 0 and kept_keys[position - 1] > key:
                    kept_keys[position], kept_ids[position] = kept_keys[position - 1], kept_ids[position - 1]
                    position -= 1
                kept_keys[position], kept_ids[position] = key, points[c]
