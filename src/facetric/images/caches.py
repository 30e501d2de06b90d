"""The contents of the cache folder: which caches are current, obsolete or damaged. For `facetric cache`.

Only files that facetric wrote are looked at: their names end in 16 digits of their key, and they begin with our magic bytes. A
cache is *current* when its images are unchanged and the versions that determine its content are those installed.
Any other will never be used again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from facetric.images.array_file import LOCK, PART, ArrayFile, PreparedCacheError, cache_folder
from facetric.images.array_format import ANY_MAGIC, HEADER_BYTES, MAGIC
from facetric.images.cache_key import Description, activation_versions, images_key, preparation_versions
from facetric.images.decoding import ImageError
from facetric.progress import Progress

CURRENT, BEING_BUILT = "current", "being built"
_SUFFIXES = (".bytes", ".f16", ".f32")
_OUR_NAME = re.compile(r".+-[0-9a-f]{16}\.(bytes|f16|f32|part|lock)")


@dataclass(frozen=True)
class Cache:
    """One file of the cache folder."""

    path: Path
    kind: str  # "prepared images", "activations", "unfinished", "lock", or "unknown" when the file does not say
    n_bytes: int
    last_used: float  # seconds since 1970
    state: str  # CURRENT, BEING_BUILT, or why it is obsolete
    n_images: int | None = None
    name: str = ""  # of the dataset
    detail: str = ""
    folder: str = ""  # that holds the images; empty for pictures in memory
    made_by: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "path": str(self.path)}


def find_caches(folder: Path | None = None) -> list[Cache]:
    """Every cache, unfinished cache and stale lock in `folder` (default `cache_folder()`), by name."""
    folder = cache_folder() if folder is None else Path(folder)
    if not folder.is_dir():
        return []
    paths = sorted(path for path in folder.iterdir() if _OUR_NAME.fullmatch(path.name) and path.is_file())
    stems = {path.stem for path in paths if path.suffix != LOCK}
    states: dict[str, str] = {}  # of lists of images that several caches share
    found = []
    for path in paths:
        with suppress(FileNotFoundError):  # it has just been removed
            if path.suffix == LOCK and path.stem in stems:
                continue
            if cache := _leftover(path) if path.suffix in (PART, LOCK) else _finished(path, states):
                found.append(cache)
    return found


def remove_cache(cache: Cache) -> bool:
    """Remove the file and the lock beside it; False, and nothing removed, when another process is building it."""
    lock = FileLock(cache.path.with_suffix(LOCK))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    try:
        cache.path.unlink(missing_ok=True)
        if not any(cache.path.with_suffix(suffix).exists() for suffix in (PART, *_SUFFIXES)):
            with suppress(OSError):  # Windows removes no open file
                cache.path.with_suffix(LOCK).unlink(missing_ok=True)
    finally:
        lock.release()
    return True


def verify_caches(caches: Sequence[Cache], on_progress: Progress | None = None) -> list[Cache]:
    """Read every file in full; returns those whose checksums fail, and marks them so that their next use rebuilds them."""
    files = [ArrayFile.stored_at(cache.path) for cache in caches]
    total = sum(file.n_blocks for file in files if file)
    n_read, damaged = 0, []
    for cache, file in zip(caches, files, strict=True):
        if file is None or not _is_sound(file, partial(_shifted, on_progress, n_read, total)):
            damaged.append(cache)
            with suppress(OSError):
                os.utime(cache.path)  # an mtime other than the builder's: the next use reads everything
        n_read += file.n_blocks if file else 0
    return damaged


def _is_sound(file: ArrayFile, on_progress: Progress) -> bool:
    try:
        return file.is_good(verify=True, on_progress=on_progress)
    except PreparedCacheError:  # the disk cannot read it
        return False


def _shifted(on_progress: Progress | None, n_before: int, total: int, n_read: int, _: int) -> None:
    if on_progress is not None:
        on_progress(n_before + n_read, total)


def _finished(path: Path, states: dict[str, str]) -> Cache | None:
    n_bytes, last_used = path.stat().st_size, _last_used(path)
    file = ArrayFile.stored_at(path)
    if file is None:
        start = _start(path)
        if not start.startswith(ANY_MAGIC):
            return None  # not ours
        return Cache(path, "unknown", n_bytes, last_used, "damaged" if start.startswith(MAGIC) else "old format")
    found = file.description()
    if not found:
        return Cache(path, "unknown", n_bytes, last_used, "damaged", file.shape[0])
    about = Description(**{field.name: found[field.name] for field in fields(Description)})
    state, folder = _state(about, states), _common_folder(about)
    return Cache(path, about.kind, n_bytes, last_used, state, file.shape[0], about.name, about.detail, folder, about.made_by)


def _leftover(path: Path) -> Cache | None:
    """A lock without a cache, or what a builder has written so far; None when it is not ours."""
    start = _start(path)
    if start.strip(b"\0") and not start.startswith(ANY_MAGIC):
        return None
    state = BEING_BUILT if _is_locked(path) else "left by a killed process"
    return Cache(path, "unfinished" if path.suffix == PART else "lock", path.stat().st_size, _last_used(path), state)


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEADER_BYTES)


def _state(description: Description, states: dict[str, str]) -> str:
    today = preparation_versions() | activation_versions()
    for name, version in description.versions.items():
        if today.get(name) != version:
            return f"made by {name} {version}, now {today.get(name)}"
    if (source := description.source) is None:
        return CURRENT
    key = source["key"]
    if key not in states:
        files = [Path(file) for file in source["files"]]
        try:
            states[key] = CURRENT if images_key(files, source["size"]) == key else "images changed"
        except (ImageError, OSError):
            states[key] = f"{sum(not file.exists() for file in files):,} of {len(files):,} images gone"
    return states[key]


def _common_folder(description: Description) -> str:
    folders = {os.path.dirname(str(file)) for file in (description.source or {}).get("files", ())}
    try:
        return os.path.commonpath(folders) if folders else ""
    except ValueError:  # on several drives
        return min(folders)


def _last_used(path: Path) -> float:
    """Every use of a cache touches its lock."""
    lock = path.with_suffix(LOCK)
    return (lock if lock.exists() else path).stat().st_mtime


def _is_locked(path: Path) -> bool:
    """Whether a builder is working on this file, or may be."""
    if not path.with_suffix(LOCK).exists():
        return False
    try:
        with FileLock(path.with_suffix(LOCK), timeout=0):
            return False
    except (Timeout, OSError):
        return True
