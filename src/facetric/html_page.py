"""A page as one HTML file: a template folder (page.html, one .css, scripts in the order of their names) with its data in place.

html_page.js and html_page.css, beside this file, come first in every page.

Names reach the page as JSON, and its scripts show them as text only. A policy inside the page allows its own script and style by
their hashes and images as its caller says; everything else, other hosts included, is forbidden.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib.resources import files

_HEAD = """<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>"""


def html_page(
    package: str,
    *,
    title: str,
    about: object,
    binary: Mapping[str, bytes],
    images: str = "data:",
    connections: str = "'none'",
    made_from: str = "",
) -> bytes:
    """The page of the template in `package`.

    `about` is what the scripts read as JSON, `binary` what they read as typed arrays and images, by name. `images` are the
    sources of images that the policy allows, `connections` the hosts that scripts may talk to, `made_from` the fingerprints of
    what the page shows.
    """
    template, shared = files(package) / "template", files("facetric")
    blocks = [json_block("about", about)]
    for name, content in binary.items():
        blocks.append(f'<script type="text/plain" id="data-{name}">{base64.b64encode(content).decode()}</script>')
    parts = sorted((part for part in template.iterdir() if part.name.endswith(".js")), key=lambda part: part.name)
    (sheet,) = (part for part in template.iterdir() if part.name.endswith(".css"))
    script = '"use strict";\n' + "\n".join(part.read_text(encoding="utf-8") for part in (shared / "html_page.js", *parts))
    style = "\n".join(part.read_text(encoding="utf-8") for part in (shared / "html_page.css", sheet))
    assert "</script" not in script
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src {images}; "
        f"connect-src {connections}; base-uri 'none'; form-action 'none'"
    )
    shown_title = title.encode("utf-8", "replace").decode()  # file names may hold undecodable bytes
    values = {
        "head": _HEAD.format(policy=policy, title=html.escape(shown_title), style=style),
        "made_from": html.escape(made_from),
        "data": "\n".join(blocks),
        "script": script,
    }
    text = (template / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], text).encode()


def json_block(name: str, value: object) -> str:
    """JSON in ASCII without any `<`, so that no name can end the block.

    >>> json_block("x", "</script>")
    '<script type="application/json" id="data-x">"\\\\u003c/script>"</script>'
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="data-{name}">{text}</script>'


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
