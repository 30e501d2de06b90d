"""Contact sheets of right and wrong results: retrieval, worst queries, confused classes, clusters.

Right images have a green frame and a tick, wrong ones a vermilion frame and a cross: readable without color.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from facetric.report.image_thumbnails import Thumbnails
from facetric.report.selection import cluster_medoids, confused_pairs
from facetric.report.style import FAINT, INK, PAPER, QUERY, RIGHT, WRONG, Color, font, shortened

ClassNames = Sequence[str] | Mapping[int, str]  # by label

_GAP, _MARGIN = 6, 16  # pixels between tiles, and around the sheet
_CAPTION = 17  # pixels of a line of text under or beside a tile


@dataclass(frozen=True)
class Tile:
    """One image of a sheet: `right` frames it green with a tick or vermilion with a cross, None in black without a mark."""

    image_id: int
    caption: str = ""
    right: bool | None = None
    poster: bool = False  # drawn larger: the query, the medoid


@dataclass(frozen=True)
class Row:
    """A line of tiles under a heading."""

    heading: str
    tiles: tuple[Tile, ...]


def retrieval_rows(
    queries: NDArray[np.int64],
    neighbors: NDArray[np.int64],
    labels: NDArray[np.integer],
    class_names: ClassNames,
    *,
    n_shown: int = 8,
) -> list[Row]:
    """A row for each query with its nearest images, from `neighbors` (n, k). The name of a wrong class is below it."""
    rows = []
    for query in queries.tolist():
        found = neighbors[query, :n_shown].tolist()
        right = [bool(labels[other] == labels[query]) for other in found]
        name = class_names[int(labels[query])]
        tiles = [Tile(query, name, None, poster=True)]
        tiles += [Tile(other, "" if ok else class_names[int(labels[other])], ok) for other, ok in zip(found, right, strict=True)]
        rows.append(Row(f"{name}: {sum(right)} of {len(found)} right", tuple(tiles)))
    return rows


def confusion_rows(
    neighbors: NDArray[np.int64],
    distances: NDArray[np.floating],
    labels: NDArray[np.integer],
    class_names: ClassNames,
    *,
    n_pairs: int = 6,
    n_examples: int = 4,
) -> list[Row]:
    """A row for each of the most confused pairs of classes: queries, each followed by the wrong image that it found first."""
    rows = []
    for pair in confused_pairs(neighbors, distances, labels, n_pairs=n_pairs, n_examples=n_examples):
        tiles = []
        for query, found in pair.examples:
            tiles.append(Tile(query, class_names[int(labels[query])]))
            tiles.append(Tile(found, class_names[int(labels[found])], False))
        heading = f"{class_names[pair.first]} and {class_names[pair.second]}: {pair.n_confusions} of {pair.n_queries} images"
        rows.append(Row(f"{heading} find the other class first", tuple(tiles)))
    return rows


def cluster_rows(
    vectors: NDArray[np.floating],
    assignment: NDArray[np.integer],
    labels: NDArray[np.integer],
    class_names: ClassNames,
    *,
    n_clusters: int = 12,
    n_shown: int = 8,
) -> list[Row]:
    """The largest clusters, each with its medoid as the poster and its members from the nearest to the medoid outwards.

    A member is right when it is of the class that most members have (ties to the medoid's class, else to the lowest label).
    """
    medoids = cluster_medoids(vectors, assignment)
    sizes = {cluster: int((assignment == cluster).sum()) for cluster in medoids}
    rows = []
    for cluster in sorted(medoids, key=lambda cluster: (-sizes[cluster], cluster))[:n_clusters]:
        members = np.flatnonzero(assignment == cluster)
        values, counts = np.unique(labels[members], return_counts=True)
        medoid, n_right = medoids[cluster], int(counts.max())
        largest = values[counts == n_right].tolist()
        majority = int(labels[medoid]) if labels[medoid] in largest else largest[0]
        away = np.linalg.norm(vectors[members] - vectors[medoid], axis=1)
        others = [int(i) for i in members[np.argsort(away, kind="stable")] if i != medoid][:n_shown]
        tiles = [Tile(medoid, class_names[int(labels[medoid])], bool(labels[medoid] == majority), poster=True)]
        for other in others:
            ok = bool(labels[other] == majority)
            tiles.append(Tile(other, "" if ok else class_names[int(labels[other])], ok))
        rows.append(Row(f"Cluster of {len(members)}, {n_right} of them {class_names[majority]}", tuple(tiles)))
    return rows


def draw_sheet(rows: Sequence[Row], thumbnails: Thumbnails, *, title: str, note: str = "", tile_size: int = 72) -> Image.Image:
    """The rows under a title. Posters are a half larger than the other tiles; a sheet without rows says so."""
    if tile_size < 24:
        raise ValueError(f"tile_size must be at least 24 pixels, or the marks cannot be read; got {tile_size}: 72 is typical")
    poster = tile_size * 3 // 2
    has_poster = any(tile.poster for row in rows for tile in row.tiles)
    height = (poster if has_poster else tile_size) + 2 * _CAPTION + _GAP
    widths = [sum((poster if tile.poster else tile_size) + _GAP for tile in row.tiles) for row in rows]
    top = _MARGIN + 26 + (20 if note else 0) + _GAP
    heading_width = min(640, max((ceil(font(12, bold=True).getlength(row.heading)) for row in rows), default=0))
    title_width, note_width = round(font(18, bold=True).getlength(title)), round(font(12).getlength(note))
    width = 2 * _MARGIN + max([*widths, heading_width, title_width, note_width, 320])
    sheet = Image.new("RGB", (width, top + _MARGIN + (len(rows) * height if rows else 30)), PAPER)
    pen = ImageDraw.Draw(sheet)
    pen.text((_MARGIN, _MARGIN), shortened(title, width - 2 * _MARGIN, font(18, bold=True)), fill=INK, font=font(18, bold=True))
    if note:
        pen.text((_MARGIN, _MARGIN + 26), shortened(note, width - 2 * _MARGIN, font(12)), fill=FAINT, font=font(12))
    if not rows:
        pen.text((_MARGIN, top), "Nothing to show.", fill=FAINT, font=font(13))
    for number, row in enumerate(rows):
        y = top + number * height
        heading = shortened(row.heading, width - 2 * _MARGIN, font(12, bold=True))
        pen.text((_MARGIN, y), heading, fill=INK, font=font(12, bold=True))
        x, bottom = _MARGIN, y + height - _CAPTION - _GAP
        for tile in row.tiles:
            size = poster if tile.poster else tile_size
            _draw_tile(sheet, pen, thumbnails, tile, (x, bottom - size), size)
            x += size + _GAP
    return sheet


def _draw_tile(
    sheet: Image.Image, pen: ImageDraw.ImageDraw, thumbnails: Thumbnails, tile: Tile, corner: tuple[int, int], size: int
) -> None:
    x, y = corner
    color = QUERY if tile.right is None else RIGHT if tile.right else WRONG
    border = max(2, size // 24)
    pen.rectangle((x, y, x + size - 1, y + size - 1), fill=color)
    sheet.paste(thumbnails.tile(tile.image_id, size - 2 * border), (x + border, y + border))
    if tile.right is not None:
        _draw_mark(pen, tile.right, (x + size - 1, y), max(12, size // 5), color)
    if tile.caption:
        ink = WRONG if tile.right is False else INK
        pen.text((x, y + size + 2), shortened(tile.caption, size, font(10)), fill=ink, font=font(10))


def _draw_mark(pen: ImageDraw.ImageDraw, right: bool, corner: tuple[int, int], size: int, color: Color) -> None:
    """A white tick or cross on a square in the upper right corner."""
    x, y = corner[0] - size + 1, corner[1]
    pen.rectangle((x, y, corner[0], y + size - 1), fill=color)
    s, width = size / 10, max(2, size // 7)
    strokes = [[(2.2, 5.2), (4.3, 7.3), (8, 2.8)]] if right else [[(2.5, 2.5), (7.5, 7.5)], [(7.5, 2.5), (2.5, 7.5)]]
    for stroke in strokes:
        pen.line([(x + a * s, y + b * s) for a, b in stroke], fill=PAPER, width=width, joint="curve")
