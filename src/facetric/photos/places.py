"""Where an index is, and what can be done with it without a model: its status, and removing photos."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from facetric.images.listing import PhotoList, list_photos, not_empty
from facetric.photos.contract import About, Place
from facetric.photos.sqlite_store import IndexFolder
from facetric.text import printable


@dataclass(frozen=True)
class Status:
    """What an index holds."""

    about: About
    n_photos: int
    n_contents: int  # photos without exact copies
    labels: dict[str, int]  # photos of each label, by name; "" without
    missing: tuple[str, ...]  # photos whose file is not there any more


def place_of(address: str | os.PathLike[str]) -> Place:
    if str(address).startswith("milvus:"):
        from facetric.photos.milvus_store import MilvusPlace

        return MilvusPlace(str(address))
    return IndexFolder(Path(address).expanduser())


def recorded_run(address: str | os.PathLike[str]) -> About | None:
    """The model that an index was made with; None if there is no index yet."""
    return place_of(address).about()


def existing(address: str | os.PathLike[str]) -> About:
    """The model that an index was made with; a ValueError if there is no index."""
    about = recorded_run(address)
    if about is None:
        raise ValueError(f"there is no index {printable(address)}: make it with `{command_line('add', address, 'PHOTOS')}`")
    return about


def status_of(address: str | os.PathLike[str]) -> Status:
    """What an index holds; needs no model."""
    about = existing(address)
    with place_of(address).store(about, read_only=True) as store:
        entries = store.entries()
    counts = Counter(entry.label for entry in entries)
    missing = tuple(entry.path for entry in entries if not os.path.exists(entry.path))
    return Status(about, len(entries), len({entry.content for entry in entries}), dict(sorted(counts.items())), missing)


def remove_photos(address: str | os.PathLike[str], photos: str | os.PathLike[str]) -> int:
    """Forget a photo, or all below a folder, which need not exist any more; the number of photos. Needs no model."""
    existing(address)
    place, folder = place_of(address), absolute(photos)
    place.lock()
    try:
        with place.store(existing(address), read_only=False) as store:
            paths = [entry.path for entry in store.entries() if is_below(entry.path, folder)]
            if not paths:
                raise ValueError(f"{printable(address)} holds no photo below {printable(folder)}: nothing to remove")
            store.remove(paths)
    finally:
        place.unlock()
    return len(paths)


def command_line(verb: str, address: str | os.PathLike[str], photos: object) -> str:
    return f"facetric index {verb} {shlex.quote(str(address))} {shlex.quote(str(photos))}"


def absolute(photos: str | os.PathLike[str]) -> Path:
    return Path(os.path.abspath(Path(photos).expanduser()))


def is_below(path: str, folder: Path) -> bool:
    return path == str(folder) or path.startswith(str(folder).rstrip(os.sep) + os.sep)


def listed_photos(photos: str | os.PathLike[str]) -> PhotoList:
    """All photos by their absolute paths; a folder without any is a ValueError."""
    listed = not_empty(list_photos(absolute(photos)))
    return PhotoList(listed.root, tuple(listed.root / photo for photo in listed.photos), listed.problems, listed.n_others)


def folder_label(root: Path, photo: Path) -> str:
    """The name of the folder directly below the root that holds a photo; empty for a photo in the root itself."""
    parts = photo.relative_to(root).parts
    return parts[0] if len(parts) > 1 else ""
