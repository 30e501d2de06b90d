"""Groups as folders of copies or links: nothing that was there before is moved, overwritten or deleted."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Literal

from facetric.files import checksummed, part_of, read_checksummed, remove_stale_parts, write_atomically
from facetric.images import content_hash
from facetric.progress import Progress
from facetric.text import printable

RECORD = ".facetric-groups.json"  # what was put here, so that a later arrangement can replace it
_FORMAT = "facetric folders 2"
_log = logging.getLogger("facetric")
How = Literal["copy", "link"]


def folder_name(name: str) -> str:
    """A name that every system takes as that of a folder.

    >>> folder_name("a/b: c.")
    'a_b_ c'
    """
    return re.sub(r'[<>:"/\\|?*\x00-\x1f\x7f]', "_", name).strip(" .") or "_"


def arrange(placed: Iterable[tuple[str, Path, str]], target: Path, how: How, *, progress: Progress | None = None) -> int:
    """Put every photo into its folder below `target`, and say how many are new there. `placed`: folder, photo, content of each.

    A name that another file has taken gets a number: "x (2).jpg". Copies and links that an earlier arrangement put elsewhere are
    removed if they are unchanged and their photo has a new place: what is only here stays.
    """
    target.mkdir(parents=True, exist_ok=True)
    before = _read_record(target)
    planned: dict[str, str] = {}
    new: list[tuple[Path, Path]] = []
    for folder, photo, content in placed:
        names = (f"{photo.stem} ({number}){photo.suffix}" if number > 1 else photo.name for number in count(1))
        free = (path for name in names if (path := target / folder / name).relative_to(target).as_posix() not in planned)
        path = next(path for path in free if not os.path.lexists(path) or _is(path, photo, content, how))
        planned[path.relative_to(target).as_posix()] = content
        if not os.path.lexists(path):
            new.append((photo, path))
    _write_record(target, before | planned)  # before anything is put there: a kill leaves nothing unknown
    remove_stale_parts(*{path.parent for _, path in new})
    for n_done, (photo, path) in enumerate(new, start=1):
        path.parent.mkdir(parents=True, exist_ok=True)
        _put(photo, path, how)
        if progress is not None:
            progress("Folders", n_done, len(new))
    contents = set(planned.values())
    moved = {place for place, content in before.items() if place not in planned and content in contents}
    for place in moved:
        _remove(target / place, before[place])
    _write_record(target, {place: content for place, content in before.items() if place not in moved} | planned)
    return len(new)


def _is(path: Path, photo: Path, content: str, how: str) -> bool:
    """Whether this is the copy, or the link, that is wanted."""
    if how == "link":
        return path.is_symlink() and os.readlink(path) == os.path.abspath(photo)
    if path.is_symlink() or not path.is_file():
        return False
    with suppress(OSError):
        return path.stat().st_size == photo.stat().st_size and content_hash(path.read_bytes()).hex() == content
    return False


def _put(photo: Path, path: Path, how: str) -> None:
    part = part_of(path)
    try:
        if how == "link":
            part.symlink_to(os.path.abspath(photo))
        else:
            shutil.copy2(photo, part)
        if os.path.lexists(path):  # since it was looked at
            raise OSError(f"{printable(path)} appeared meanwhile: run the command again")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _remove(path: Path, content: str) -> None:
    """Remove a link, or a copy that nobody has changed, and its folder when that is empty."""
    with suppress(OSError):
        if path.is_symlink() or content_hash(path.read_bytes()).hex() == content:
            path.unlink()
            path.parent.rmdir()


def _read_record(target: Path) -> dict[str, str]:
    try:
        record = read_checksummed((target / RECORD).read_bytes())
        if record["format"] == _FORMAT:
            files = {str(place): str(content) for place, content in record["files"].items()}
            return {place: content for place, content in files.items() if ".." not in Path(place).parts}  # nothing outside
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, AttributeError) as error:
        _log.warning("%s is damaged (%s): what an earlier arrangement put here stays", printable(target / RECORD), error)
    return {}


def _write_record(target: Path, files: Mapping[str, str]) -> None:
    places = {place.encode("utf-8", "backslashreplace").decode(): content for place, content in files.items()}
    write_atomically(target / RECORD, checksummed({"format": _FORMAT, "files": places}))
