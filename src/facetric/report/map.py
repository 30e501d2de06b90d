"""The paper's t-SNE figures: a map of the embedding with the images themselves in place. "Best viewed when zoomed in".

Every image moves to the free cell of a grid that is nearest to its point, so that none covers another. And what the page shows
first of the vectors: the worst queries, and the medoid of each cluster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count

import numba
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from facetric.metrics import nearest
from facetric.progress import Progress
from facetric.report.sprites import Thumbnails

PERPLEXITY = 30.0
LARGEST_SIDE = 8192  # pixels: 67 million in all, which every viewer opens
THREADS_FROM = 2_000  # images; below, threads wait for each other longer than they work, far longer on a busy machine
_N_STEPS = 750  # van der Maaten's: 250 with exaggeration, then 500 without
_STEPS_PER_REPORT = 10
_FREE_EDGE = 0.04  # of the grid, on every side: room for the groups at the edge to spread
_LARGEST_ASPECT = 2.0  # a map wider than this is stretched


@dataclass(frozen=True, eq=False)
class GridPlacement:
    """Which cell every point got. Cell (column, row) is the unit square around the point (column, row)."""

    points: NDArray[np.float64]  # (n, 2) the positions in units of cells, x to the right and y downwards
    cells: NDArray[np.int64]  # (n, 2) column and row; no two are equal
    n_columns: int
    n_rows: int


def tsne_positions(vectors: NDArray[np.floating], *, seed: int = 0, progress: Progress | None = None) -> NDArray[np.float64]:
    """t-SNE of finite vectors (n, d) → positions (n, 2), from exact neighbors and a PCA start; the seed decides the rest.

    The perplexity is lowered for sets of fewer than 91 images. One image lies at the origin; two or three keep
    their principal axes, because t-SNE is undefined for them.
    """
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    n = len(vectors)
    start = _principal_plane(vectors, seed)
    if n < 4:
        return start
    from openTSNE import TSNE  # type: ignore[import-untyped]
    from openTSNE.affinity import PerplexityBasedNN  # type: ignore[import-untyped]
    from openTSNE.nearest_neighbors import PrecomputedNeighbors  # type: ignore[import-untyped]

    perplexity, n_jobs = min(PERPLEXITY, (n - 1) / 3), 2 if n >= THREADS_FROM else 1
    found = nearest(vectors, min(n - 1, math.ceil(3 * perplexity)), metric="euclidean")
    affinities = PerplexityBasedNN(perplexity=perplexity, knn_index=PrecomputedNeighbors(found.rows, found.values), n_jobs=n_jobs)
    reports = count(1)

    def report(*_: object) -> None:
        if progress is not None:
            progress("Map", _STEPS_PER_REPORT * next(reports), _N_STEPS)

    tsne = TSNE(n_jobs=n_jobs, random_state=seed, callbacks=report, callbacks_every_iters=_STEPS_PER_REPORT)
    return np.asarray(tsne.fit(affinities=affinities, initialization=start * 1e-4), dtype=np.float64)


def _principal_plane(vectors: NDArray[np.float32], seed: int) -> NDArray[np.float64]:
    """(n, 2) the first two principal components at unit scale, with a little noise so that duplicates can part."""
    centered = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    axes = np.linalg.eigh(centered.T @ centered)[1][:, :-3:-1]  # (d, 2), or (1, 1)
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])] < 0, -1.0, 1.0)  # the sign is arbitrary
    plane = np.zeros((len(vectors), 2))
    plane[:, : axes.shape[1]] = centered @ axes
    plane /= max(plane[:, 0].std(), 1e-6 * float(np.abs(vectors).max()), 1e-30)
    noise: NDArray[np.float64] = plane + 1e-2 * np.random.default_rng(seed).normal(size=plane.shape)
    return noise


def draw_map(
    positions: NDArray[np.floating],
    thumbnails: Thumbnails,
    *,
    thumbnail_size: int | None = None,
    progress: Progress | None = None,
) -> tuple[Image.Image, NDArray[np.int64]]:
    """Every image at its position (n, 2), moved to the nearest free cell of a grid so that none covers another.

    ``thumbnail_size`` is in pixels; by default as large as the map may be (`LARGEST_SIDE`), 16 at least and 96 at most. Returns
    the map and the upper left corner (n, 2) of every thumbnail in it.
    """
    placement = place_on_grid(positions)
    cell = LARGEST_SIDE // (max(placement.n_columns, placement.n_rows) + 1)  # half a cell stays free on every side
    size = thumbnail_size or min(max(cell - max(1, cell // 24), 16), 96)
    cell = size + max(1, size // 24)
    margin = cell // 2
    canvas = Image.new("RGB", (placement.n_columns * cell + 2 * margin, placement.n_rows * cell + 2 * margin), "white")
    corners = placement.cells * cell + margin
    for image_id, tile in thumbnails.tiles(range(len(positions)), size, progress=progress):
        left, top = corners[image_id].tolist()
        canvas.paste(tile, (left, top))
    return canvas, corners


def place_on_grid(positions: NDArray[np.floating], *, fill: float = 0.4) -> GridPlacement:
    """Place points (n, 2), finite, on a grid that has n / `fill` cells and about the shape of the cloud.

    Points are placed in order of their distance from the middle of their cell, ties by index; each takes the nearest free cell,
    ties by row, then column. So no cell that stays free is nearer to a point than its own.
    """
    positions = np.asarray(positions, dtype=np.float64)
    low = positions.min(axis=0)
    width, height = positions.max(axis=0) - low
    aspect = width / height if width > 0 and height > 0 else 1.0
    aspect = min(max(aspect, 1 / _LARGEST_ASPECT), _LARGEST_ASPECT)
    n_columns = max(1, math.ceil(math.sqrt(len(positions) / fill * aspect)))
    n_rows = max(1, math.ceil(len(positions) / fill / n_columns))
    points = np.empty_like(positions)
    for axis, (extent, n_cells) in enumerate(((width, n_columns), (height, n_rows))):
        if extent > 0:
            free = _FREE_EDGE * (n_cells - 1)
            points[:, axis] = free + (positions[:, axis] - low[axis]) * ((n_cells - 1 - 2 * free) / extent)
        else:
            points[:, axis] = (n_cells - 1) / 2
    points[:, 1] = n_rows - 1 - points[:, 1]  # pictures count rows from the top
    off_middle = np.hypot(*(points - np.rint(points)).T)
    order = np.argsort(off_middle, kind="stable")
    return GridPlacement(points, _nearest_free_cells(points, order, n_columns, n_rows), n_columns, n_rows)


@numba.njit(cache=True)
def _nearest_free_cells(points, order, n_columns, n_rows):  # type: ignore[no-untyped-def]
    """Search squares of growing radius around each point's own cell, until none further out can be nearer."""
    taken = np.zeros((n_rows, n_columns), dtype=np.bool_)
    cells = np.empty((len(points), 2), dtype=np.int64)
    for i in order:
        x, y = points[i, 0], points[i, 1]
        column, row = int(np.rint(x)), int(np.rint(y))
        nearest, best_row, best_column = np.inf, -1, -1
        radius = 0
        while radius - 0.5 <= nearest and radius <= n_columns + n_rows:  # a cell at this radius is at least radius − ½ away
            for r in range(max(0, row - radius), min(n_rows - 1, row + radius) + 1):
                edge = r in (row - radius, row + radius)
                stride = 1 if edge else 2 * radius  # the whole first and last row, else only the two ends
                for c in range(column - radius, column + radius + 1, max(1, stride)):
                    if c < 0 or c >= n_columns or taken[r, c]:
                        continue
                    away = np.hypot(c - x, r - y)
                    if away < nearest or (away == nearest and (r, c) < (best_row, best_column)):
                        nearest, best_row, best_column = away, r, c
            radius += 1
        taken[best_row, best_column] = True
        cells[i, 0], cells[i, 1] = best_column, best_row
    return cells


def worst_queries(neighbors: NDArray[np.int64], labels: NDArray[np.integer]) -> NDArray[np.int64]:
    """Queries by their lists of neighbors (n, k), worst first.

    First those without any neighbor of their class, then those with the fewest; ties go to the longest run of wrong images at
    the top, then to the lowest image id. Images that are alone in their class, or find only their class, are left out.
    """
    right = labels[neighbors] == labels[:, None]  # (n, k)
    _, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    wrong_at_top = np.where(right.any(axis=1), right.argmax(axis=1), right.shape[1])
    possible = np.minimum(sizes[codes] - 1, right.shape[1])
    precision = right.sum(axis=1) / np.maximum(possible, 1)
    order = np.lexsort((np.arange(len(labels)), -wrong_at_top, precision))
    chosen: NDArray[np.int64] = order[(possible[order] > 0) & (precision[order] < 1)].astype(np.int64)
    return chosen


def cluster_medoids(vectors: NDArray[np.floating], assignment: NDArray[np.integer]) -> NDArray[np.int64]:
    """For each cluster the member with the least sum of distances to the others, the medoid of F; ties to the lowest id."""
    from sklearn.metrics import pairwise_distances_chunked  # type: ignore[import-untyped]

    medoids = []
    for cluster in np.unique(assignment):
        members = np.flatnonzero(assignment == cluster)
        own = vectors[members].astype(np.float64)
        blocks = pairwise_distances_chunked(own - own.mean(axis=0), reduce_func=lambda block, _: block.sum(axis=1))
        medoids.append(members[np.concatenate(list(blocks)).argmin()])
    return np.array(medoids, dtype=np.int64)
