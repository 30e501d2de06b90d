"""Words for messages and tables: a path as one line, the nearest known name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

_N_NAMED = 5  # things that a message names before it only counts


def printable(path: object) -> str:
    """The path as one line that any terminal can show: control characters and undecodable bytes are escaped."""
    text = str(path)
    return text if text.isprintable() else repr(text)[1:-1]


def readable(path: Path) -> str:
    """A relative path as every format can hold it: with slashes, and undecodable bytes escaped as \\udcXX."""
    return path.as_posix().encode("utf-8", "backslashreplace").decode()


def counted(n: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "photo"), counted(2000, "photo")
    ('1 photo', '2,000 photos')
    """
    return f"{n:,} {what}{'s' * (n != 1)}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A half sentence for an error message, empty when nothing is near.

    >>> did_you_mean("product", ["cub", "cars", "products"])
    "; did you mean 'products'?"
    """
    near = get_close_matches(name.lower(), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def class_fingerprint(class_names: Sequence[str], labels: Iterable[int]) -> str:
    """Eight digits that stand for the classes with these labels: scores of different ones cannot be compared."""
    names = sorted({class_names[label] for label in labels})
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()[:8]


def name_some(things: Iterable[object]) -> str:
    """The first few, and how many more.

    >>> name_some("abcdefgh")
    'a, b, c, d, e and 3 more'
    """
    names = [printable(thing) for thing in things]
    more = len(names) - _N_NAMED
    return ", ".join(names[:_N_NAMED]) + (f" and {more:,} more" if more > 0 else "")
