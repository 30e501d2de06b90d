"""report.html: one file that shows a run, works from disk and makes no network requests; and the figures beside it.

Numbers are embedded as base64 typed arrays, thumbnails as sprite sheets, names as JSON (see html_page.py).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from facetric.evaluation import evaluate_vectors, facility_clusters
from facetric.html_page import html_page
from facetric.images import open_image
from facetric.machine import installed_version
from facetric.metrics import nearest, unit_rows, validated_vectors
from facetric.progress import Progress
from facetric.report.cards import score_section
from facetric.report.figures import draw_curves, write_plot, write_png, written
from facetric.report.map import cluster_medoids, draw_map, tsne_positions, worst_queries
from facetric.report.run_record import RunRecord, ShownImages, names_of, read_run
from facetric.report.sprites import SIDES, SpriteSheets, Thumbnails, pack
from facetric.runs import Run
from facetric.text import class_fingerprint

MOST_FAILURES = 300
MOST_THUMBNAILS = 30_000
THUMBNAIL_BYTES = 17_000_000  # before base64, which adds a third: the page of 6,000 images stays under 30 MB


@dataclass(frozen=True)
class Report:
    """What was written, and what could not be shown."""

    page: Path
    figures: tuple[Path, ...]
    notes: tuple[str, ...]


def write_report(
    folder: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    images: bool = True,
    figures: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Write the page of a run, report.html in its folder by default, with whatever the run has.

    * ``images``: with thumbnails of the test images, as they are now.
    * ``figures``: also figures/curves.png and, with images, figures/tsne_map.png of the run folder.
    * ``seed`` is that of the map.
    """
    run = Run(folder)
    record = read_run(run.path)
    show = progress or (lambda step, done, total: None)
    thumbnails = positions = None
    notes = list(record.notes)
    if (shown := record.images) is not None:
        if images:
            thumbnails = _thumbnails(run, shown, notes)
        positions = tsne_positions(shown.vectors, seed=seed, progress=show)
        show("Clusters", 0, 1)
        try:
            record = replace(record, images=replace(shown, clusters=_clusters(shown)))
        except ValueError as error:
            notes.append(f"There are no clusters: {error}.")
        show("Clusters", 1, 1)
    record = replace(record, notes=tuple(notes))
    page = write_page(
        run.report_file if output is None else output, record, positions=positions, thumbnails=thumbnails, progress=progress
    )
    drawn: list[Path] = []
    if figures:
        try:
            run.refuse_links()
            if record.panels:
                drawn.append(write_plot(draw_curves(record.panels, title=record.title), run.figures / "curves.png", dpi=120))
            if positions is not None and thumbnails is not None:
                drawn_map, _ = draw_map(positions, thumbnails, progress=progress)
                drawn.append(write_png(drawn_map, run.figures / "tsne_map.png"))
        except OSError as error:  # the page is written: a read-only run cannot take figures
            notes.append(f"the figures were not drawn, figures/ cannot be written ({error.strerror or error}): pass --no-figures")
    return Report(page, tuple(drawn), tuple(notes))


def write_vectors_report(
    vectors: NDArray[np.float32],
    names: Sequence[str],
    labels: NDArray[Any],
    output: str | os.PathLike[str],
    *,
    images: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Report:
    """The same page for labeled vectors of any origin; with ``images``, thumbnails where the names are paths of image files."""
    target, show = Path(output), progress or (lambda step, done, total: None)
    evaluation = evaluate_vectors(vectors, labels, progress=show)
    values, codes = np.unique(labels, return_inverse=True)
    paths = tuple(map(os.path.abspath, names))
    are_files = images and all(map(os.path.isfile, (paths[0], paths[-1])))
    shown = ShownImages(
        unit_rows(vectors),
        codes.reshape(-1).astype(np.int32),
        tuple(map(str, values.tolist())),
        paths if are_files else tuple(names),
        "cosine",
        are_files=are_files,
    )
    positions = tsne_positions(shown.vectors, seed=seed, progress=show)
    record = RunRecord(
        title=target.stem,
        noun="vectors",
        images=replace(shown, clusters=_clusters(shown)),
        scores=score_section(evaluation, dataset="", run_name=target.stem),
        made_from=evaluation.fingerprint,
    )
    thumbnails = Thumbnails(lambda row, size: open_image(paths[row], at_least=2 * size)) if are_files else None
    return Report(write_page(target, record, positions=positions, thumbnails=thumbnails, progress=progress), (), ())


def _thumbnails(run: Run, shown: ShownImages, notes: list[str]) -> Thumbnails | None:
    """Of the images in the order of the vectors: files as they are now, or arrays of the dataset of the run."""
    names = shown.image_names
    if shown.are_files:
        return Thumbnails(lambda image_id, size: open_image(names[image_id], at_least=2 * size))
    rows = [int(name.removeprefix("image ")) for name in names]
    try:
        held = run.images("test")[0].images
        if not isinstance(held, np.ndarray) or max(rows) >= len(held):
            raise ValueError("the dataset has changed")
    except (ValueError, OSError) as error:
        notes.append(f"The images were in memory, and the dataset cannot be loaded ({' '.join(str(error).split())}).")
        return None
    return Thumbnails(lambda image_id, _: Image.fromarray(held[rows[image_id]]), side=min(held.shape[1:3]))


def _clusters(shown: ShownImages) -> NDArray[np.int32]:
    """The clustering (n,) that the evaluation scores, means from medoids, k = number of classes, numbered without gaps.

    A ValueError for vectors that cannot be scored, such as those of one class.
    """
    rows, codes = validated_vectors(shown.vectors, shown.class_labels, shown.metric)
    found = facility_clusters(rows, int(codes.max()) + 1).labels
    return np.unique(found, return_inverse=True)[1].reshape(-1).astype(np.int32)


def write_page(
    path: str | os.PathLike[str],
    run: RunRecord,
    *,
    positions: NDArray[np.floating] | None = None,
    thumbnails: Thumbnails | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write the page atomically and return its path. `positions` (n, 2) are the images' positions on the map."""
    arrays, first = ({}, np.empty(0, np.int64)) if run.images is None or positions is None else _arrays(run.images, positions)
    if not arrays:
        run = replace(run, images=None)
    sheets = _sheets(0 if run.images is None else len(run.images), first, thumbnails, progress)
    binary = {name: array.tobytes() for name, array in arrays.items()}
    binary |= {"thumbnails": sheets.cells.astype("<i4").tobytes()}
    binary |= {f"sheet-{i}": sheet for i, sheet in enumerate(sheets.sheets)}
    target = Path(path)
    side = SIDES[0] if thumbnails is None else thumbnails.side
    page = html_page(
        "facetric.report",
        title=f"{run.title} · facetric report",
        about=_about(run, sheets, side, _folder_of_images(run.images, target)),
        binary=binary,
        images="data: 'self' file:",
        made_from=run.made_from,
    )
    return written(target, page)


def _arrays(images: ShownImages, positions: NDArray[np.floating]) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
    """What the page needs of the images, by the name under which it reads them; and the images that some section shows, whose
    thumbnails come first.
    """
    labels = images.class_labels
    arrays: dict[str, NDArray[Any]] = {"positions": np.nan_to_num(positions).astype("<f4"), "labels": labels.astype("<i4")}
    first = [np.empty(0, dtype=np.int64)]
    if images.clusters is not None:
        medoids = cluster_medoids(images.vectors, images.clusters)
        arrays |= {"clusters": images.clusters.astype("<i4"), "medoids": medoids.astype("<i4")}
        first.append(medoids)
    if images.n_neighbors:
        found = nearest(images.vectors, images.n_neighbors, metric="euclidean")
        worst = worst_queries(found.rows, labels)
        failures = worst[labels[found.rows[worst, 0]] != labels[worst]][:MOST_FAILURES]
        arrays |= {
            "neighbors": found.rows.astype("<i4"),
            "distances": found.values.astype("<f4"),
            "failures": failures.astype("<i4"),
        }
        first += [failures, found.rows[failures].reshape(-1)]
    return arrays, np.concatenate(first)


def _sheets(n: int, first: NDArray[np.int64], thumbnails: Thumbnails | None, progress: Progress | None) -> SpriteSheets:
    """Thumbnails of all n images, or of the first ones and of others at random."""
    if thumbnails is None or n == 0:
        return SpriteSheets((), np.full(n, -1, dtype=np.int32), SIDES[-1], 0)
    chosen = np.arange(n)
    if n > MOST_THUMBNAILS:
        both = np.concatenate([first, np.random.default_rng(0).permutation(n)])
        chosen = both[np.sort(np.unique(both, return_index=True)[1])][:MOST_THUMBNAILS]
    return pack(thumbnails, chosen.tolist(), n_images=n, budget=THUMBNAIL_BYTES, progress=progress)


def _folder_of_images(images: ShownImages | None, page: Path) -> str | None:
    """The way from the page to the folder that the shown names start from; None where images are not files."""
    if images is None or not images.are_files:
        return None
    first = images.image_names[0]
    folder = first.removesuffix(names_of(images)[0])
    return Path(os.path.relpath(os.path.abspath(folder), page.resolve().parent)).as_posix()


def _about(run: RunRecord, sheets: SpriteSheets, largest_side: int, start: str | None) -> dict[str, Any]:
    """Everything that is text or a setting; keys as the scripts read them."""
    images, facts, notes = run.images, [f"dataset {run.dataset}"] if run.dataset else [], list(run.notes)
    if images is not None:
        n_classes = len(images.class_names)
        classes = class_fingerprint(images.class_names, range(n_classes))
        facts += [f"{len(images):,} {run.noun} of {n_classes:,} class{'es' * (n_classes > 1)} ({classes})"]
        facts += [f"{images.vectors.shape[1]} dimensions"]
    if sheets.n_missing:
        notes.append(f"{sheets.n_missing:,} images could not be opened and have no thumbnail.")
    texts = {"Training command": run.command, "config.toml": run.config, "environment.json": run.environment}
    return {
        "title": run.title,
        "facts": " · ".join(facts),
        "footer": f"Made by facetric {installed_version('facetric')} with `facetric report`. This page needs no network.",
        "n_images": 0 if images is None else len(images),
        "n_neighbors": 0 if images is None else images.n_neighbors,
        "class_names": [] if images is None else images.class_names,
        "image_names": () if images is None else names_of(images),
        "start": start,
        "thumbnails": {
            "n_sheets": len(sheets.sheets),
            "side": sheets.side,
            "columns": sheets.columns,
            "per_sheet": sheets.per_sheet,
            "type": "image/webp",
        },
        "map_about": _map_about(sheets, largest_side),
        "scores": {"cards": [], "columns": [], "meanings": [], "rows": [], "notes": "", **run.scores},
        "curves": [asdict(panel) for panel in run.panels],
        "notes": notes,
        "texts": [{"title": title, "text": text} for title, text in texts.items() if text],
    }


def _map_about(sheets: SpriteSheets, largest_side: int) -> str:
    """What the map is, and what of it is not shown."""
    n, n_shown = len(sheets.cells), int((sheets.cells >= 0).sum())
    text = "t-SNE of the embeddings: nearby images are similar to the network; large distances mean little."
    if n_shown == 0:
        return f"{text} This report was made without thumbnails."
    if n_shown < n - sheets.n_missing:
        text += f" To keep this file small, only {n_shown:,} of the {n:,} images have a thumbnail, {sheets.side} pixels wide."
    elif sheets.side < min(largest_side, 64):
        text += f" To keep this file small, thumbnails are {sheets.side} pixels wide."
    return text + " Thumbnails appear as you zoom in."
