"""Which photos are copies of each other, resized, recompressed or slightly cropped: all pairs, in compiled code.

Pairs whose perceptual hashes differ in few bits are candidates. Their gray images are laid over each other by a shift and a
stretch in each direction (Gauss–Newton on the brightness, Lucas and Kanade 1981), which undoes a crop, and count as copies when
they then correlate and differ nowhere by much: two drawings on white paper correlate by their paper, and differ where one has a
stroke that the other has not. `benchmarks/duplicates.py` measures recall and false alarms at these thresholds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.fft import dctn  # type: ignore[import-untyped]
from scipy.ndimage import gaussian_filter  # type: ignore[import-untyped]

from facetric.photos.store import Look
from facetric.progress import Progress

MAX_BITS = 30  # of 99 that may differ
MIN_CORRELATION = 0.97  # of the gray images, once they are aligned
MAX_COLOR_DIFFERENCE = 10.0  # mean over the coarse image, of 255
MAX_DIFFERENCE = 1.25  # of any pixel then, in standard deviations of the image
MIN_CONTRAST = 2.0  # standard deviation of the gray image, of 255: plainer images show nothing to compare
MIN_EDGES = 0.03  # the share of the pixels over which edges are spread: a speck shows nothing to compare
_FREQUENCIES = 10  # in each direction, of the perceptual hash
_BLUR = 0.7  # pixels
_HOPELESS = (0.3, 0.5, 0.7, 0.85)  # a correlation below this ends the rough alignment, iteration by iteration
_FINE = 5  # iterations afterwards, with all pixels
_ROWS = 200  # between two reports of progress


def near_groups(grays: NDArray[np.uint8], colors: NDArray[np.uint8], *, progress: Progress | None = None) -> NDArray[np.int64]:
    """For every image the first one that it is a copy of, or of a copy of it, and so on; itself if there is none."""
    n = len(grays)
    parents = np.arange(n)
    images, comparable = normalized(grays)
    flat_colors = colors.reshape(n, -1).astype(np.float32)
    codes = hash_codes(grays)
    for start in range(0, n, _ROWS):
        _link(codes, images, comparable, flat_colors, parents, start, min(start + _ROWS, n))
        if progress is not None:
            progress("Comparing photos", min(start + _ROWS, n), n)
    return np.array([_find(parents, i) for i in range(n)], dtype=np.int64)


def sketches(looks: Sequence[Look]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The gray images (n, 32, 32) and coarse colors (n, 4, 4, 2) of looks."""
    grays, colors = (b"".join(parts) for parts in ((look.gray for look in looks), (look.colors for look in looks)))
    return np.frombuffer(grays, np.uint8).reshape(-1, 32, 32), np.frombuffer(colors, np.uint8).reshape(-1, 4, 4, 2)


def hash_codes(grays: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Perceptual hashes (n, 2) of gray images (n, 32, 32), of the 99 lowest frequencies: bit = above the median of its image."""
    found = dctn(grays.astype(np.float32), axes=(1, 2))[:, :_FREQUENCIES, :_FREQUENCIES].reshape(len(grays), -1)[:, 1:]
    bits = np.zeros((len(grays), 128), dtype=np.bool_)
    bits[:, : found.shape[1]] = found > np.median(found, axis=1, keepdims=True)
    return np.packbits(bits, axis=1).view(np.uint64)


def normalized(grays: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Images slightly blurred, with mean 0 and standard deviation 1; and whether each shows enough to be compared."""
    blurred = gaussian_filter(grays.astype(np.float32), (0, _BLUR, _BLUR))
    blurred -= blurred.mean(axis=(1, 2), keepdims=True)
    contrasts = blurred.std(axis=(1, 2))
    blurred /= np.maximum(contrasts, 1e-3)[:, None, None]
    edges = np.array([_edges(image) for image in blurred])
    return blurred, (contrasts >= MIN_CONTRAST) & (edges >= MIN_EDGES)


@njit(cache=True)
def _edges(image: NDArray[np.float32]) -> float:
    """(Σ e)² / Σ e² over the number of pixels, e the squared slopes: 1 for edges everywhere, 1/n for one edge."""
    first, second = 0.0, 1e-12
    for row in range(image.shape[0] - 1):
        for column in range(image.shape[1] - 1):
            down, right = image[row + 1, column] - image[row, column], image[row, column + 1] - image[row, column]
            slope = down * down + right * right
            first, second = first + slope, second + slope * slope
    return float(first * first / second / image.size)


@njit(cache=True)
def _find(parents: NDArray[np.int64], i: int) -> int:
    """The root of an element of a forest, which is the smallest of its tree."""
    while parents[i] != i:
        parents[i] = parents[parents[i]]
        i = parents[i]
    return i


@njit(cache=True)
def _link(
    codes: NDArray[np.uint64],
    images: NDArray[np.float32],
    comparable: NDArray[np.bool_],
    colors: NDArray[np.float32],
    parents: NDArray[np.int64],
    start: int,
    stop: int,
) -> None:
    """Join every i in start … stop − 1 with the j > i that are copies of it. Pairs that are joined already are skipped."""
    for i in range(start, stop):
        if not comparable[i]:
            continue
        for j in range(i + 1, len(codes)):
            if _n_bits(codes[i, 0] ^ codes[j, 0]) + _n_bits(codes[i, 1] ^ codes[j, 1]) > MAX_BITS:
                continue
            a, b = _find(parents, i), _find(parents, j)
            if not comparable[j] or a == b:
                continue
            if np.abs(colors[i] - colors[j]).mean() > MAX_COLOR_DIFFERENCE:
                continue
            correlation, difference = aligned(images[i], images[j])
            if correlation >= MIN_CORRELATION and difference <= MAX_DIFFERENCE:
                parents[max(a, b)] = min(a, b)


@njit(cache=True)
def _n_bits(word: np.uint64) -> np.uint64:
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@njit(cache=True)
def aligned(fixed: NDArray[np.float32], moving: NDArray[np.float32]) -> tuple[float, float]:
    """The largest correlation met while `moving` is laid over `fixed`, little more than the first one where there is no hope,
    and the largest difference of a pixel there.
    """
    warp = np.array([1.0, 0.0, 1.0, 0.0, 1.0, 0.0])  # stretch and shift in x, in y; gain and offset of brightness
    best, difference = -1.0, np.inf
    for iteration in range(len(_HOPELESS) + _FINE):
        rough = iteration < len(_HOPELESS)
        correlation, largest, update = _step(fixed, moving, warp, 2 if rough else 1)
        if correlation < (_HOPELESS[iteration] if rough else -1.0):
            return best, difference
        if not rough and correlation > best:
            best, difference = correlation, largest
        warp = warp + update
        size = fixed.shape[0]
        if abs(warp[0] - 1) > 0.25 or abs(warp[2] - 1) > 0.25 or max(abs(warp[1]), abs(warp[3])) > 0.15 * size:
            return best, difference  # no slight crop any more
    return best, difference


@njit(cache=True)
def _step(
    fixed: NDArray[np.float32], moving: NDArray[np.float32], warp: NDArray[np.float64], step: int
) -> tuple[float, float, NDArray[np.float64]]:
    """The correlation under this warp (−2 when less than 70% overlap), the largest difference of a pixel, and the Gauss–Newton
    update; every `step`-th pixel.
    """
    n = fixed.shape[0]
    center = (n - 1) / 2
    normal, right, slope = np.zeros((6, 6)), np.zeros(6), np.zeros(6)
    sum_f, sum_m, sum_ff, sum_mm, sum_fm, count, largest = 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0.0
    for row in range(0, n, step):
        y = row - center
        to_y = warp[2] * y + warp[3] + center
        if to_y < 0 or to_y > n - 1:
            continue
        top = min(int(to_y), n - 2)
        v = to_y - top
        for column in range(0, n, step):
            x = column - center
            to_x = warp[0] * x + warp[1] + center
            if to_x < 0 or to_x > n - 1:
                continue
            left = min(int(to_x), n - 2)
            u = to_x - left
            a, b = moving[top, left], moving[top, left + 1]
            c, d = moving[top + 1, left], moving[top + 1, left + 1]
            value = (a * (1 - u) + b * u) * (1 - v) + (c * (1 - u) + d * u) * v
            by_x, by_y = (b - a) * (1 - v) + (d - c) * v, (c - a) * (1 - u) + (d - b) * u
            f = fixed[row, column]
            count += 1
            sum_f, sum_m = sum_f + f, sum_m + value
            sum_ff, sum_mm, sum_fm = sum_ff + f * f, sum_mm + value * value, sum_fm + f * value
            slope[0], slope[1] = warp[4] * by_x * x, warp[4] * by_x
            slope[2], slope[3] = warp[4] * by_y * y, warp[4] * by_y
            slope[4], slope[5] = value, 1.0
            error = f - warp[4] * value - warp[5]
            largest = max(largest, abs(error))
            for p in range(6):
                right[p] += slope[p] * error
                for q in range(p + 1):
                    normal[p, q] += slope[p] * slope[q]
    sampled = (n + step - 1) // step
    if count < 0.7 * sampled * sampled:
        return -2.0, largest, right
    spread = (sum_ff - sum_f * sum_f / count) * (sum_mm - sum_m * sum_m / count)
    correlation = (sum_fm - sum_f * sum_m / count) / np.sqrt(max(spread, 1e-12))
    for p in range(6):
        normal[p, p] += 1e-6 * normal[p, p] + 1e-9
        for q in range(p):
            normal[q, p] = normal[p, q]
    return correlation, largest, np.linalg.solve(normal, right)  # type: ignore[return-value]
