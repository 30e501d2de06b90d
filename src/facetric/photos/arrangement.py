"""Groups as folders of copies or links: nothing that was there before is moved, overwritten or deleted."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from facetric.files import checksummed, part_of, read_checksummed, remove_stale_parts, write_atomically
from facetric.images import content_hash
from facetric.progress import Progress
from facetric.text import printable

RECORD = ".facetric-groups.json"  # what was put here, so that a later arrangement can replace it
_FORMAT = "facetric folders 2"
_log = logging.getLogger("facetric")


@dataclass(frozen=True)
class Placed:
    """A photo that goes into a folder."""

    folder: str
    photo: Path
    content: str


def folder_name(name: str) -> str:
    """A name that every system takes as that of a folder.

    >>> folder_name("a/b: c.")
    'a_b_ c'
    """
    return re.sub(r'[<>:"/\\|?*\x00-\x1f\x7f]', "_", name).strip(" .") or "_"


def arrange(placed: Iterable[Placed], target: Path, how: Literal["copy", "link"], *, progress: Progress | None = None) -> int:
    """Put every photo into its folder below `target`, and say how many are new there.

    A name that another file has taken gets a number: "x (2).jpg". Copies and links that an earlier arrangement put elsewhere are
    removed if they are unchanged and their photo has a new place: what is only here stays.
    """
    placed = list(placed)
    target.mkdir(parents=True, exist_ok=True)
    before = _read_record(target)
    planned: dict[str, str] = {}
    new: list[tuple[Placed, Path]] = []
    for one in placed:
        path, there = _free_place(one, target, how, planned)
        planned[path.relative_to(target).as_posix()] = one.content
        if not there:
            new.append((one, path))
    _write_record(target, before | planned)  # before anything is put there: a kill leaves nothing unknown
    remove_stale_parts(*{path.parent for _, path in new})
    for n_done, (one, path) in enumerate(new, start=1):
        path.parent.mkdir(parents=True, exist_ok=True)
        _put(one.photo, path, how)
        if progress is not None:
            progress("Folders", n_done, len(new))
    kept, contents = dict(before), set(planned.values())
    for place, content in before.items():
        if place not in planned and content in contents:
            _remove(target / place, content)
            del kept[place]
    _write_record(target, kept | planned)
    return len(new)


def _free_place(one: Placed, target: Path, how: str, planned: Mapping[str, str]) -> tuple[Path, bool]:
    """Where the photo goes, and whether it is there already."""
    folder, name = target / one.folder, one.photo.name
    number = 1
    while True:
        path = folder / (name if number == 1 else f"{one.photo.stem} ({number}){one.photo.suffix}")
        if path.relative_to(target).as_posix() not in planned:
            if not os.path.lexists(path):
                return path, False
            if _is(path, one, how):
                return path, True
        number += 1


def _is(path: Path, one: Placed, how: str) -> bool:
    """Whether this is the copy, or the link, that is wanted."""
    if how == "link":
        return path.is_symlink() and os.readlink(path) == os.path.abspath(one.photo)
    if path.is_symlink() or not path.is_file():
        return False
    try:
        return path.stat().st_size == one.photo.stat().st_size and content_hash(path.read_bytes()).hex() == one.content
    except OSError:
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
        if ".." in path.parts:  # a record that somebody else wrote
            return
        if path.is_symlink() or content_hash(path.read_bytes()).hex() == content:
            path.unlink()
            path.parent.rmdir()


def _read_record(target: Path) -> dict[str, str]:
    try:
        record = read_checksummed((target / RECORD).read_bytes())
        if record["format"] == _FORMAT:
            return {str(place): str(content) for place, content in record["files"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, AttributeError) as error:
        _log.warning("%s is damaged (%s): what an earlier arrangement put here stays", printable(target / RECORD), error)
    return {}


def _write_record(target: Path, files: Mapping[str, str]) -> None:
    places = {place.encode("utf-8", "backslashreplace").decode(): content for place, content in files.items()}
    write_atomically(target / RECORD, checksummed({"format": _FORMAT, "files": places}))
