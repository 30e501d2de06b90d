"""The paper's t-SNE figures: a map of the embedding with the images themselves in place. "Best viewed when zoomed in"."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from facetric.progress import Progress
from facetric.report.grid_placement import GridPlacement, place_on_grid
from facetric.report.image_thumbnails import Thumbnails
from facetric.report.nearest_images import nearest_neighbors
from facetric.report.style import PAPER, Color, class_color, write_image

PERPLEXITY = 30.0
BARNES_HUT_UP_TO = 20_000  # images; beyond, interpolation (FIt-SNE) gives the same kind of map in a fraction of the time
LARGEST_SIDE = 8192  # pixels: 67 million in all, which every viewer opens
THREADS_FROM = 2_000  # images; below, threads wait for each other longer than they work, far longer on a busy machine
_PHASES = ((250, 12.0), (500, 1.0))  # steps and exaggeration, van der Maaten's
_STEPS_PER_REPORT = 10


@dataclass(frozen=True, eq=False)
class ThumbnailMap:
    """The picture, and where every image is in it."""

    image: Image.Image
    placement: GridPlacement
    cell: int  # pixels from one thumbnail to the next
    corners: NDArray[np.int64]  # (n, 2) x and y of the upper left corner of every thumbnail
    size: int  # pixels of a thumbnail with its frame

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a PNG, or what the suffix says."""
        target = Path(path)
        options: dict[str, Any] = (
            {"compress_level": 3} if target.suffix.lower() == ".png" else {}
        )  # 6 is three times slower for 5% of the size
        return write_image(self.image, target, **options)


def tsne_positions(
    vectors: NDArray[np.floating],
    *,
    perplexity: float = PERPLEXITY,
    seed: int = 0,
    n_jobs: int = 2,
    on_progress: Progress | None = None,
) -> NDArray[np.float64]:
    """Barnes-Hut t-SNE of vectors (n, d) → positions (n, 2), from exact neighbors and a PCA start; the seed decides the rest.

    The perplexity is lowered for sets of fewer than 3 · perplexity images. One image lies at the origin; two or three keep
    their principal axes, because t-SNE is undefined for them.
    """
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    if vectors.ndim != 2 or 0 in vectors.shape:
        raise ValueError(f"vectors must have shape (n, d), both above 0; got {vectors.shape}: pass one vector per image")
    if not np.isfinite(vectors).all():
        raise ValueError("vectors must be finite, but some hold NaN or infinity: embed the images again")
    n = len(vectors)
    start = _principal_plane(vectors, seed)
    if n < 4:
        return start
    from openTSNE import TSNEEmbedding  # type: ignore[import-untyped]
    from openTSNE.affinity import PerplexityBasedNN  # type: ignore[import-untyped]
    from openTSNE.nearest_neighbors import PrecomputedNeighbors  # type: ignore[import-untyped]

    perplexity = min(perplexity, (n - 1) / 3)
    n_jobs = n_jobs if n >= THREADS_FROM else 1
    found = nearest_neighbors(vectors, min(n - 1, math.ceil(3 * perplexity)))
    affinities = PerplexityBasedNN(
        perplexity=perplexity, knn_index=PrecomputedNeighbors(found.image_ids, found.distances), n_jobs=n_jobs
    )
    embedding = TSNEEmbedding(
        start * 1e-4,
        affinities,
        negative_gradient_method="bh" if n <= BARNES_HUT_UP_TO else "fft",
        n_jobs=n_jobs,
        random_state=seed,
    )
    n_steps = sum(steps for steps, _ in _PHASES)
    n_before = 0
    for steps, exaggeration in _PHASES:

        def report(step: int, _error: float, _embedding: object, n_before: int = n_before) -> None:
            if on_progress is not None:
                on_progress(n_before + step, n_steps)

        embedding.optimize(
            steps,
            exaggeration=exaggeration,
            learning_rate=max(10.0, n / exaggeration),  # 10: a handful of images would not move
            momentum=0.8,
            inplace=True,
            callbacks=report,
            callbacks_every_iters=_STEPS_PER_REPORT,
        )
        n_before += steps
    return np.asarray(embedding, dtype=np.float64)


def draw_map(
    positions: NDArray[np.floating],
    thumbnails: Thumbnails,
    *,
    labels: NDArray[np.integer] | None = None,
    frames: bool = False,
    thumbnail_size: int | None = None,
    fill: float = 0.4,
    background: Color = PAPER,
    on_progress: Progress | None = None,
) -> ThumbnailMap:
    """Every image at its position (n, 2), moved to the nearest free cell of a grid so that none covers another.

    * ``frames``: a frame in the color of the image's class; needs ``labels`` (n,).
    * ``thumbnail_size``: in pixels; by default as large as the map may be (`LARGEST_SIDE`), 16 at least and 96 at most.
    * ``fill``: the fraction of cells that hold an image.
    """
    if frames and labels is None:
        raise ValueError("frames=True colors the images by class and needs labels: pass labels, or frames=False")
    if labels is not None and len(labels) != len(positions):
        raise ValueError(f"labels ({len(labels)}) and positions ({len(positions)}) differ in number: pass one label per image")
    placement = place_on_grid(positions, fill=fill)
    n_cells = max(placement.n_columns, placement.n_rows)
    cell = LARGEST_SIDE // (n_cells + 1)  # half a cell stays free on every side
    size = thumbnail_size if thumbnail_size is not None else min(max(cell - max(1, cell // 24), 16), 96)
    if size < 4:
        raise ValueError(f"thumbnail_size must be at least 4 pixels; got {size}: 32 and more can be recognized")
    gap = max(1, size // 24)
    cell = size + gap
    margin = cell // 2
    canvas = Image.new("RGB", (placement.n_columns * cell + 2 * margin, placement.n_rows * cell + 2 * margin), tuple(background))
    corners = placement.cells * cell + margin
    border = max(1, size // 14) if frames else 0
    pen = ImageDraw.Draw(canvas)
    codes = np.unique(labels, return_inverse=True)[1] if labels is not None else None
    for image_id, tile in thumbnails.tiles(range(len(positions)), size - 2 * border, on_progress=on_progress):
        left, top = corners[image_id].tolist()
        if border and codes is not None:
            pen.rectangle((left, top, left + size - 1, top + size - 1), fill=class_color(int(codes[image_id])))
        canvas.paste(tile, (left + border, top + border))
    return ThumbnailMap(canvas, placement, cell, corners, size)


def _principal_plane(vectors: NDArray[np.float32], seed: int) -> NDArray[np.float64]:
    """(n, 2) the first two principal components at unit scale, with a little noise so that duplicates can part."""
    centered = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    variances, axes = np.linalg.eigh(centered.T @ centered)  # ascending
    axes = axes[:, ::-1][:, :2]
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])] < 0, -1.0, 1.0)  # the sign is arbitrary
    plane = np.zeros((len(vectors), 2))
    plane[:, : axes.shape[1]] = centered @ axes
    if variances[-1] > 1e-12 * max(1.0, float(np.abs(vectors).max()) ** 2):
        plane /= math.sqrt(variances[-1] / len(vectors))
    noise: NDArray[np.float64] = plane + 1e-2 * np.random.default_rng(seed).normal(size=plane.shape)
    return noise
