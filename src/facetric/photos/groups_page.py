"""clusters.html: the groups with all their photos, and a place to correct them. Works from disk and asks no other host."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facetric.files import write_atomically
from facetric.html_page import html_page
from facetric.photos.decisions import Decisions
from facetric.photos.photo_groups import PhotoGroups
from facetric.text import printable, readable

PAGE = "clusters.html"
_MARK = b'<meta name="generator" content="facetric cluster">'
MOST_QUESTIONS = 2000


def check_page(path: Path) -> None:
    """A ValueError if there is something else in the place of the page."""
    if not path.exists():
        return
    if not path.is_dir():
        with path.open("rb") as file:
            if _MARK in file.read(1000):
                return
    raise ValueError(f"{printable(path)} exists and was not written by `facetric cluster`: choose another --output")


def write_page(groups: PhotoGroups, copies: NDArray[np.int64], path: Path, *, thumbnails: str) -> None:
    """Write the page. `copies`: for every distinct content the first one that it is a copy of; `thumbnails`: their folder."""
    check_page(path)
    about = _about(groups, copies, path.resolve().parent, thumbnails)
    write_atomically(path, html_page("facetric.photos", title=about["title"], about=about, binary={}, pictures="'self' file:"))


def live_page(groups: PhotoGroups, saved: Decisions) -> bytes:
    """The page on a server that has photos/CONTENT and thumbnails/CONTENT.jpg and takes changes of the decisions at `decisions`.

    `saved` are all decisions by now; those after `groups` were made are applied by the page.
    """
    copies = np.arange(len(set(groups.contents)))  # copies are found on all thumbnails, which a server makes when they are seen
    about = _about(groups, copies, groups.root, "thumbnails") | {"live": "decisions", "saved": saved.as_dict()}
    return html_page("facetric.photos", title=about["title"], about=about, binary={}, pictures="'self'", connections="'self'")


def _about(groups: PhotoGroups, copies: NDArray[np.int64], here: Path, thumbnails: str) -> dict[str, Any]:
    """What the scripts read. Files with the same bytes are one photo there, with several paths."""
    rows: dict[str, list[int]] = {}
    for row, content in enumerate(groups.contents):
        rows.setdefault(content, []).append(row)
    place = {content: i for i, content in enumerate(rows)}
    first = [own[0] for own in rows.values()]
    questions = groups.questions[:MOST_QUESTIONS]
    decisions = groups.decisions.as_dict()
    return {
        "title": f"{groups.root.resolve().name} in {groups.n_groups:,} groups",
        "facts": _facts(groups),
        "id": _digest([str(groups.root.resolve()), str(here)]),
        "base": _digest(decisions),
        "start": readable(Path(os.path.relpath(groups.root.resolve(), here))),
        "thumbnails": thumbnails,
        "paths": [[readable(groups.photos[row]) for row in own] for own in rows.values()],
        "contents": list(rows),
        "clusters": groups.clusters[first].tolist(),
        "doubt": [round(float(groups.doubt[row]), 3) for row in first],
        "copies": copies.tolist(),
        "medoids": [place[groups.contents[row]] for row in groups.medoids],
        "names": {str(cluster): name for cluster, name in groups.names.items()},
        "questions": [[place[groups.contents[q.first]], place[groups.contents[q.second]]] for q in questions],
        "decisions": decisions,
    }


def _facts(groups: PhotoGroups) -> str:
    promise = groups.promise
    parts = [f"{len(groups.photos):,} photos in {groups.n_groups:,} groups, {groups.n_alone:,} alone"]
    if promise is not None:
        parts.append(
            f"Expected: of two photos in one group {promise.precision} belong together; of two that belong together about "
            f"{promise.recall:.0%} are in one group"
        )
    made_by = groups.made_by[:1].upper() + groups.made_by[1:]
    return ". ".join([*parts, made_by]).strip(". ") + "."


def _digest(value: object) -> str:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=8).hexdigest()
