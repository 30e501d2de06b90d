"""Vectors of length one, and the validation of embeddings: checked once, converted to float32, normalized for cosine."""

from __future__ import annotations

from typing import TypeVar, get_args

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from facetric.metrics.contingency import label_codes
from facetric.metrics.neighbors import Metric

_ROWS_AT_ONCE = 1 << 16
Float = TypeVar("Float", np.float32, np.float64)


def validated_vectors(vectors: ArrayLike, labels: ArrayLike, metric: Metric) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Vectors as distances compare them, (n, d) float32, and class codes from 0, (n,); a ValueError for what cannot be scored.

    Cosine: unit vectors. Euclidean: divided by one power of two, which changes no order, so that nothing overflows.
    """
    if metric not in get_args(Metric):
        raise ValueError(f"metric must be one of {', '.join(get_args(Metric))}; got {metric!r}: choose one of these")
    array = _checked(vectors)
    codes = label_codes(labels)
    if len(codes) != len(array):
        raise ValueError(
            f"there must be one label per vector; got {len(codes)} labels for {len(array)} vectors: pass those of one dataset"
        )
    if codes.max() == 0:
        raise ValueError(
            f"all {len(codes)} labels are of one class, so that every neighbor and every cluster is right: "
            "pass images of at least 2 classes"
        )
    rows = np.empty(array.shape, dtype=np.float32)
    scale = 2.0 ** -float(np.frexp(max(abs(float(array.max())), abs(float(array.min()))))[1])
    for start in range(0, len(array), _ROWS_AT_ONCE):
        part = array[start : start + _ROWS_AT_ONCE].astype(np.float64) * scale
        if metric == "euclidean":
            rows[start : start + len(part)] = part
            continue
        units = unit_rows(part)
        if not (usable := units.any(axis=1)).all():
            zero = start + int(usable.argmin())
            raise ValueError(f"vector {zero} is zero and has no direction: remove it, or compare with metric='euclidean'")
        rows[start : start + len(part)] = units
    return rows, codes


def unit_rows(vectors: NDArray[Float]) -> NDArray[Float]:
    """Rows of length one; a row of zeros stays. The lengths are summed in float64, in one order: equal rows stay equal.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    units = np.array(vectors, order="C")
    _normalize(units)
    return units


def _checked(vectors: ArrayLike) -> NDArray[np.floating]:
    try:
        array = np.asarray(vectors)
    except (TypeError, ValueError, RuntimeError) as error:  # a torch tensor on a GPU, or with a gradient
        raise ValueError(f"vectors must be an (n, d) array of numbers ({error}): for a tensor pass .detach().cpu()") from None
    if array.dtype.kind not in "fiu":
        raise ValueError(f"vectors must be an (n, d) array of numbers; got dtype {array.dtype}: convert it to float32")
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"vectors must have shape (n, d), one row per image; got {array.shape}: pass at least 2 rows")
    starts = range(0, len(array), _ROWS_AT_ONCE)
    finite = np.concatenate([np.isfinite(array[start : start + _ROWS_AT_ONCE]).all(axis=1) for start in starts])
    if not finite.all():
        raise ValueError(
            f"vectors must be finite; row {int(finite.argmin())} is not ({int((~finite).sum())} of {len(array)} rows hold NaN or "
            "infinity): look for a diverged model or broken images"
        )
    return array


@njit(cache=True, nogil=True)
def _normalize(rows: NDArray[np.floating]) -> None:
    for i in range(len(rows)):
        square = 0.0
        for x in rows[i]:
            square += np.float64(x) * np.float64(x)
        norm = np.sqrt(square) if square > 0.0 else np.inf
        for j in range(rows.shape[1]):
            rows[i, j] /= norm
