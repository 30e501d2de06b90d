"""clusters.html: the groups with all their photos, and a place to correct them; and a page of search results.

Both work from disk and ask no other host.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facetric.files import write_atomically
from facetric.html_page import html_page
from facetric.images import ImageError, is_image_file, open_file
from facetric.photos.decisions import Decisions
from facetric.photos.groups import PhotoGroups
from facetric.photos.ingest import thumbnail_of
from facetric.photos.query import Match
from facetric.text import counted, printable, readable

MARK = b'<meta name="generator" content="facetric cluster">'
_SIZE = 320  # pixels of the longer side


def write_page(groups: PhotoGroups, copies: NDArray[np.int64], path: Path, *, thumbnails: str) -> None:
    """Write the page. `copies`: for every distinct content the first one that it is a copy of; `thumbnails`: their folder, empty
    where there are names without photos.
    """
    about = _about(groups, copies, path.resolve().parent, thumbnails)
    write_atomically(path, html_page("facetric.photos", title=about["title"], about=about, binary={}, images="'self' file:"))


def live_page(groups: PhotoGroups, saved: Decisions) -> bytes:
    """The page on a server that has photos/CONTENT and thumbnails/CONTENT.jpg and takes changes of the decisions at `decisions`.

    `saved` are all decisions by now; those after `groups` were made are applied by the page.
    """
    copies = np.arange(len(set(groups.contents)))  # copies are found on all thumbnails, which a server makes when they are seen
    has_photos = any(os.path.lexists(groups.root / photo) for photo in groups.photos)
    about = _about(groups, copies, groups.root, "thumbnails" if has_photos else "") | {
        "live": "decisions",
        "saved": saved.as_dict(),
    }
    return html_page("facetric.photos", title=about["title"], about=about, binary={}, images="'self'", connections="'self'")


def _about(groups: PhotoGroups, copies: NDArray[np.int64], here: Path, thumbnails: str) -> dict[str, Any]:
    """What the scripts read. Files with the same bytes are one photo there, with several paths."""
    rows: dict[str, list[int]] = {}
    for row, content in enumerate(groups.contents):
        rows.setdefault(content, []).append(row)
    place = {content: i for i, content in enumerate(rows)}
    first = [own[0] for own in rows.values()]
    decisions = groups.decisions.as_dict()
    return {
        "title": f"{groups.root.resolve().name} in {counted(groups.n_groups, 'group')}",
        "noun": groups.noun,
        "facts": ". ".join(line[:1].upper() + line[1:] for line in groups.summary).strip(". ") + ".",
        "id": _digest([str(groups.root.resolve()), str(here)]),
        "base": _digest(decisions),
        "start": readable(Path(os.path.relpath(groups.root.resolve(), here))),
        "thumbnails": thumbnails,
        "paths": [[readable(groups.photos[row]) for row in own] for own in rows.values()],
        "contents": list(rows),
        "clusters": groups.clusters[first].tolist(),
        "ambiguity": [round(float(groups.ambiguity[row]), 3) for row in first],
        "copies": copies.tolist(),
        "precision": [groups.precision_of(cluster) for cluster in range(len(groups.medoids))],
        "sureness": [groups.sureness(cluster) for cluster in range(len(groups.medoids))],
        "medoids": [place[groups.contents[row]] for row in groups.medoids],
        "names": {str(cluster): name for cluster, name in groups.names.items()},
        "questions": [[place[groups.contents[photo]] for photo in pair] for pair in groups.questions.tolist()],
        "decisions": decisions,
    }


def _digest(value: object) -> str:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=8).hexdigest()


def search_page(matches: Sequence[Match]) -> bytes:
    """A section per photo that was searched for: the photo, then what was found, with links to the originals."""
    page = (files("facetric.photos") / "template" / "search.html").read_text(encoding="utf-8")
    return page.replace("{sections}", "\n".join(map(_section, matches))).encode("utf-8", "backslashreplace")


def _section(match: Match) -> str:
    figures = [] if match.photo.startswith("#") else [_figure(match.photo, "searched for", "query")]
    for hit in match.hits:
        kind, far = ("hit", "") if hit.similarity >= match.near_enough else ("far", " not similar enough")
        figures.append(_figure(hit.entry.path, f"{hit.similarity:.3f}{far} {hit.entry.label}", kind))
    said = escape(printable(match.verdict))
    title = escape(printable(Path(match.photo).name))
    return f'<section><h2>{title}</h2><p>{said}</p><div class="photos">{"".join(figures)}</div></section>'


def _figure(path: str, caption: str, kind: str) -> str:
    try:
        with open_file(Path(path)) as file:
            data = base64.b64encode(thumbnail_of(file.read(), _SIZE)).decode()
    except (ImageError, OSError):
        name = escape(printable(Path(path).name))
        shown = f"<p>{'the file is not there' if is_image_file(path) else name}</p>"  # a name need not be one of a photo
    else:
        shown = f'<img loading="lazy" alt="{escape(printable(Path(path).name))}" src="data:image/jpeg;base64,{data}">'
    link = escape(Path(path).absolute().as_uri())
    text = escape(printable(caption))
    title = escape(printable(path))
    return f'<figure class="{kind}"><a href="{link}" title="{title}">{shown}</a><figcaption>{text}</figcaption></figure>'
