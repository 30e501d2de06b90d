"""report.html: one file that shows a run, works from disk and makes no network requests.

Numbers are embedded as base64 typed arrays, thumbnails as sprite sheets, names as JSON (see html_page.py).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facetric.files import write_atomically
from facetric.html_page import html_page
from facetric.progress import OnStep
from facetric.report.cards import meaning
from facetric.report.image_thumbnails import Thumbnails
from facetric.report.kept_results import kept_clusters, kept_positions
from facetric.report.nearest_images import nearest_neighbors
from facetric.report.run_record import EmbeddedImages, RunRecord, read_run, without_common_folder
from facetric.report.selection import cluster_medoids, worst_queries
from facetric.report.sprites import SIDES, SpriteSheets, pack
from facetric.runs import Run

N_NEIGHBORS = 10
MOST_FAILURES = 300
MOST_THUMBNAILS = 30_000
THUMBNAIL_BYTES = 17_000_000  # before base64, which adds a third: the page of 6,000 images stays under 30 MB


@dataclass(frozen=True, eq=False)
class MapData:
    """What the page needs of the images, besides their names: arrays by the name under which the page reads them."""

    arrays: dict[str, NDArray[Any]]
    n_neighbors: int
    first_images: NDArray[np.int64]  # images that some section shows: their thumbnails come first


def report_run(
    folder: str | os.PathLike[str],
    *,
    class_names: Sequence[str] | None = None,
    thumbnails: Thumbnails | None = None,
    largest_side: int = SIDES[0],
    path: str | os.PathLike[str] | None = None,
    footer: str = "",
    notes: Sequence[str] = (),
    seed: int = 0,
    on_step: OnStep | None = None,
) -> Path:
    """Read a run folder and write its report, report.html in the folder by default, with whatever the run has.

    * ``class_names`` name the labels of embeddings.npz, ``thumbnails`` are of its images, in its order.
    * ``largest_side``: side of the pictures in pixels where that is less than 192: enlarging them would only cost bytes.
    * ``notes`` are added to what the report says about missing pieces; ``seed`` is that of the map.
    """
    folder = Path(folder)
    step = on_step or (lambda name, done, total: None)
    run = read_run(folder, class_names=class_names)
    positions = None
    if run.images is not None:
        images = run.images
        positions = kept_positions(folder, images.vectors, seed=seed, on_progress=lambda done, n: step("Map", done, n))
        step("Clusters", 0, 1)
        try:
            clusters = kept_clusters(folder, images.vectors, images.class_labels, metric=images.metric)
        except ValueError as error:
            notes = [*notes, f"There are no clusters: {error}."]
        else:
            filled = np.unique(clusters, return_inverse=True)[1].reshape(-1).astype(np.int32)
            run = replace(run, images=replace(images, clusters=filled))
        step("Clusters", 1, 1)
    run = replace(run, notes=(*run.notes, *notes))
    target = Run(folder).report_file if path is None else Path(path)
    return write_report(
        target, run, positions=positions, thumbnails=thumbnails, largest_side=largest_side, footer=footer, on_step=on_step
    )


def write_report(
    path: str | os.PathLike[str],
    run: RunRecord,
    *,
    positions: NDArray[np.floating] | None = None,
    thumbnails: Thumbnails | None = None,
    largest_side: int = SIDES[0],
    footer: str = "",
    on_step: OnStep | None = None,
) -> Path:
    """Write the page atomically and return its path. `positions` (n, 2) are the images' positions on the map."""
    images = run.images
    if images is None:
        data = MapData({}, 0, np.empty(0, dtype=np.int64))
        sheets = SpriteSheets((), np.empty(0, dtype=np.int32), SIDES[-1], 0)
    else:
        if positions is None or np.shape(positions) != (len(images), 2):
            raise ValueError(
                f"positions must be (n, 2) for the {len(images)} images of the run; got "
                f"{'none' if positions is None else np.shape(positions)}: pass kept_positions(folder, run.images.vectors)"
            )
        data = _map_data(images, positions)
        sheets = _sheets(images, data, thumbnails, largest_side, on_step)
    binary = {name: array.tobytes() for name, array in data.arrays.items()}
    binary |= {"thumbnails": sheets.cells.astype("<i4").tobytes()}
    binary |= {f"sheet-{i}": sheet for i, sheet in enumerate(sheets.sheets)}
    target = Path(path)
    about = _about(run, data, sheets, largest_side, footer, _folder_of_images(images, target))
    target.parent.mkdir(parents=True, exist_ok=True)
    title = f"{run.title} · facetric report"
    write_atomically(
        target,
        html_page(
            "facetric.report",
            title=title,
            about=about,
            binary=binary,
            pictures="data: 'self' file:",
            made_from=run.made_from,
        ),
    )
    return target


def _map_data(images: EmbeddedImages, positions: NDArray[np.floating]) -> MapData:
    n, k = len(images), min(N_NEIGHBORS, len(images) - 1)
    labels = images.class_labels
    arrays: dict[str, NDArray[Any]] = {
        "positions": np.nan_to_num(positions).astype("<f4"),
        "labels": labels.astype("<i4"),
    }
    shown = [np.empty(0, dtype=np.int64)]
    if k:
        found = nearest_neighbors(images.vectors, k)
        worst = worst_queries(found.image_ids, labels, n_queries=n, one_per_class=False)
        failures = worst[labels[found.image_ids[worst, 0]] != labels[worst]][:MOST_FAILURES]
        arrays |= {
            "neighbors": found.image_ids.astype("<i4"),
            "distances": found.distances.astype("<f4"),
            "failures": failures.astype("<i4"),
        }
        shown += [failures, found.image_ids[failures].reshape(-1)]
    if images.clusters is not None:
        medoids = cluster_medoids(images.vectors, images.clusters)
        in_order = np.array([medoids[cluster] for cluster in range(len(medoids))], dtype="<i4")
        arrays |= {"clusters": images.clusters.astype("<i4"), "medoids": in_order}
        shown.insert(1, in_order.astype(np.int64))
    return MapData(arrays, k, np.concatenate(shown))


def _sheets(
    images: EmbeddedImages, data: MapData, thumbnails: Thumbnails | None, largest_side: int, on_step: OnStep | None
) -> SpriteSheets:
    """Thumbnails of all images, or of those that some section shows and of others at random."""
    n = len(images)
    if thumbnails is None:
        return SpriteSheets((), np.full(n, -1, dtype=np.int32), SIDES[-1], 0)
    if n <= MOST_THUMBNAILS:
        chosen = np.arange(n)
    else:
        others = np.random.default_rng(0).permutation(n)
        both = np.concatenate([data.first_images, others])
        chosen = both[np.sort(np.unique(both, return_index=True)[1])][:MOST_THUMBNAILS]
    return pack(
        thumbnails,
        chosen.tolist(),
        n_images=n,
        budget=THUMBNAIL_BYTES,
        largest_side=largest_side,
        on_progress=None if on_step is None else lambda done, total: on_step("Thumbnails", done, total),
    )


def _folder_of_images(images: EmbeddedImages | None, page: Path) -> str | None:
    """The way from the page to the folder that the shown names start from; None where images are not files."""
    if images is None or not images.are_files:
        return None
    first = images.image_names[0]
    folder = first.removesuffix(without_common_folder(images.image_names)[0])
    return Path(os.path.relpath(os.path.abspath(folder), page.resolve().parent)).as_posix()


def _about(
    run: RunRecord, data: MapData, sheets: SpriteSheets, largest_side: int, footer: str, start: str | None
) -> dict[str, Any]:
    """Everything that is text or a setting; keys as the scripts read them."""
    images = run.images
    n = len(images) if images is not None else 0
    names = without_common_folder(images.image_names) if images is not None else []
    class_names = list(images.class_names) if images is not None else []
    facts = [
        run.dataset and f"dataset {run.dataset}",
        n and f"{n:,} test images of {len(class_names):,} class{'es' * (len(class_names) > 1)}",
    ]
    if images is not None:
        facts.append(f"{images.vectors.shape[1]} dimensions")
    notes = list(run.notes)
    if sheets.n_missing:
        notes.append(f"{sheets.n_missing:,} images could not be opened and have no thumbnail.")
    texts = [
        ("Training command", run.command),
        ("config.toml", run.config),
        ("environment.json", run.environment),
    ]
    return {
        "title": run.title,
        "facts": " · ".join(str(fact) for fact in facts if fact),
        "footer": footer,
        "n_images": n,
        "n_neighbors": data.n_neighbors,
        "class_names": class_names,
        "image_names": names,
        "start": start,
        "thumbnails": {
            "n_sheets": len(sheets.sheets),
            "side": sheets.side,
            "columns": sheets.columns,
            "per_sheet": sheets.per_sheet,
            "type": "image/webp",
        },
        "map_about": _map_about(n, sheets, largest_side),
        "scores": {
            "cards": [vars(card) for card in run.scores.cards],
            "columns": run.scores.columns,
            "meanings": [meaning(column) for column in run.scores.columns],
            "rows": [vars(row) for row in run.scores.rows],
            "notes": run.scores.notes,
        },
        "curves": [
            {"title": panel.title, "series": [{"name": c.name, "steps": c.steps, "values": c.values} for c in panel.curves]}
            for panel in run.panels
        ],
        "notes": notes,
        "texts": [{"title": title, "text": text} for title, text in texts if text],
    }


def _map_about(n: int, sheets: SpriteSheets, largest_side: int) -> str:
    """What the map is, and what of it is not shown."""
    n_shown = int((sheets.cells >= 0).sum())
    text = "t-SNE of the embeddings: nearby images are similar to the network; large distances mean little."
    if n_shown == 0:
        return f"{text} This report was made without thumbnails."
    if n_shown < n - sheets.n_missing:
        text += f" To keep this file small, only {n_shown:,} of the {n:,} images have a thumbnail, {sheets.side} pixels wide."
    elif sheets.side < min(largest_side, 64):
        text += f" To keep this file small, thumbnails are {sheets.side} pixels wide."
    return text + " Thumbnails appear as you zoom in."
