"""Search results as one HTML file with the pictures in it; nothing is loaded from elsewhere."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from pathlib import Path

from facetric.images.decoding import ImageError, open_image
from facetric.photos.queries import Match
from facetric.text import printable

_SIZE = 320  # pixels of the longer side
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Search results</title>
<style>
:root {{ color-scheme: light dark; font: 16px/1.4 system-ui, sans-serif }}
body {{ max-width: 1400px; margin: auto; padding: 1rem; overflow-wrap: anywhere }}
section {{ border-top: 1px solid #8888; padding: 1rem 0 }}
.photos {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: .75rem }}
figure {{ margin: 0 }} img {{ width: 100%; aspect-ratio: 1; object-fit: contain; background: #8882 }}
.query img {{ outline: 3px solid teal }} a:focus-visible {{ outline: 3px solid }}
figcaption {{ font-size: .85rem; overflow: hidden; text-overflow: ellipsis; white-space: nowrap }}
</style>
<h1>Search results</h1>
{sections}
</html>
"""


def page(matches: Sequence[Match]) -> bytes:
    """A section per photo that was searched for: the photo, then what was found, with links to the originals."""
    return _PAGE.format(sections="\n".join(map(_section, matches))).encode("utf-8", "backslashreplace")


def verdict(match: Match) -> str:
    """One line: unknown, or the vote of the neighbors; empty without either."""
    if not match.hits:
        return "unknown: nothing in the index is similar enough"
    if match.vote is None:
        return ""
    expected = match.vote.expected_precision
    precision = "precision not measured: too few labels" if expected is None else f"expected precision {expected:.0%}"
    vote = f"{match.vote.label} ({match.vote.fraction:.0%} of the labeled neighbors; {precision})"
    return f"unknown, perhaps {vote}" if match.is_unknown else vote


def _section(match: Match) -> str:
    figures = [_figure(match.photo, "searched for", "query")]
    figures += [_figure(hit.entry.path, f"{hit.similarity:.3f} {hit.entry.label}", "hit") for hit in match.hits]
    said = escape(printable(verdict(match)))
    title = escape(printable(Path(match.photo).name))
    return f'<section><h2>{title}</h2><p>{said}</p><div class="photos">{"".join(figures)}</div></section>'


def _figure(path: str, caption: str, kind: str) -> str:
    try:
        image = open_image(path, at_least=_SIZE)
    except ImageError:
        picture = "<p>the file is not there</p>"
    else:
        image.thumbnail((_SIZE, _SIZE))
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=85)
        data = base64.b64encode(buffer.getvalue()).decode()
        picture = f'<img loading="lazy" alt="{escape(printable(Path(path).name))}" src="data:image/jpeg;base64,{data}">'
    link = escape(Path(path).absolute().as_uri())
    text = escape(printable(caption))
    title = escape(printable(path))
    return f'<figure class="{kind}"><a href="{link}" title="{title}">{picture}</a><figcaption>{text}</figcaption></figure>'
