"""All figures of a run, in its figures/ folder: curves, map, retrieval, worst queries, confusions, clusters."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facetric.metrics import Metric
from facetric.progress import Progress, progress_bar
from facetric.report.curve_pictures import save_curves
from facetric.report.image_thumbnails import Thumbnails
from facetric.report.kept_results import kept_clusters, kept_positions
from facetric.report.nearest_images import nearest_neighbors
from facetric.report.selection import worst_queries
from facetric.report.sheets import ClassNames, cluster_rows, confusion_rows, draw_sheet, retrieval_rows
from facetric.report.style import write_image
from facetric.report.tsne_map import draw_map
from facetric.runs import Run

N_NEIGHBORS = 8
_N_ROWS = 10
_MARKS = "✓ green: the same class. ✗ vermilion: another class, named below."


def draw_run(
    folder: str | os.PathLike[str],
    vectors: NDArray[np.float32],
    labels: NDArray[np.int64],
    class_names: ClassNames,
    thumbnails: Thumbnails,
    *,
    metric: Metric = "euclidean",
    frames: bool = False,
    seed: int = 0,
    bar: Callable[[str], AbstractContextManager[Progress]] = progress_bar,
) -> list[Path]:
    """Draw what the run folder and the embeddings (n, d) allow, and return the files; pictures without content are left out.

    `metric` is that of the evaluation; it decides neighbors and clusters.
    """
    folder = Path(folder)
    run = Run(folder)
    target = run.figures
    run.refuse_links()
    target.mkdir(parents=True, exist_ok=True)
    made = []
    if run.metrics_file.is_file() and run.metrics_file.stat().st_size:
        made.append(save_curves(run.metrics_file, target / "curves.png", title=folder.name))
    if len(vectors) == 0:
        return made
    with bar("t-SNE") as report:
        positions = kept_positions(folder, vectors, seed=seed, on_progress=report)
    with bar("Thumbnails") as report:
        picture = draw_map(positions, thumbnails, labels=labels, frames=frames, on_progress=report)
    made.append(picture.save(target / "tsne_map.png"))
    if len(vectors) < 2:
        return made
    rows = _unit_rows(vectors) if metric == "cosine" else vectors
    found = nearest_neighbors(rows, min(N_NEIGHBORS, len(vectors) - 1))
    any_queries = np.sort(np.random.default_rng(seed).permutation(len(vectors))[:_N_ROWS])
    worst = worst_queries(found.image_ids, labels, n_queries=_N_ROWS)
    sheets = {
        "retrieval": (
            "Random queries and their nearest neighbors",
            retrieval_rows(any_queries, found.image_ids, labels, class_names),
        ),
        "worst_queries": ("Worst queries, one for each class", retrieval_rows(worst, found.image_ids, labels, class_names)),
        "confused_classes": (
            "Classes confused most often",
            confusion_rows(found.image_ids, found.distances, labels, class_names, n_pairs=_N_ROWS),
        ),
    }
    if len(np.unique(labels)) > 1:  # one class is one cluster: nothing to show
        clusters = kept_clusters(folder, vectors, labels, metric=metric)
        sheets["clusters"] = (
            "Largest clusters, with their medoids",
            cluster_rows(rows, clusters, labels, class_names, n_clusters=_N_ROWS),
        )
    for name, (title, tile_rows) in sheets.items():
        path = target / f"{name}.png"
        if tile_rows:
            made.append(write_image(draw_sheet(tile_rows, thumbnails, title=title, note=_MARKS), path))
        else:
            path.unlink(missing_ok=True)  # left by an earlier evaluation
    return made


def _unit_rows(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), dtype=np.float32)
