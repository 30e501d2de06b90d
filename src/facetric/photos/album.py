"""`cluster_folder`: from a folder of photos to groups, a table and a page, in steps that survive a kill.

The output is a collection of these photos: what it holds is neither decoded nor embedded again, and it can be searched and
served. Beside it lie clusters.csv, clusters.html and the thumbnails of the page.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from facetric.embedder import Embedder
from facetric.files import checksummed, read_checksummed, remove_stale_parts, write_atomically, write_unsynced
from facetric.images import ImageList, content_hash
from facetric.photos.collection import gone_photos, open_collection
from facetric.photos.decisions import Decisions, kept_decisions, replace_decisions
from facetric.photos.groups import PhotoGroups, check_table, group_photos
from facetric.photos.ingest import Look, absolute, ingest, listed_photos
from facetric.photos.near import near_groups
from facetric.photos.pages import check_page, write_page
from facetric.progress import Progress
from facetric.text import printable

TABLE, PAGE, THUMBNAILS = "clusters.csv", "clusters.html", "thumbnails"
_WRITTEN = ".clusters.json"  # what the table was when it was written: edits of it are not overwritten
_OURS = re.compile(r"[0-9a-f]{32}\.jpg")


def cluster_folder(
    photos: str | os.PathLike[str],
    embedder: Embedder,
    output: str | os.PathLike[str],
    *,
    n_clusters: int | None = None,
    finer: int = 0,
    coarser: int = 0,
    decisions: Decisions | None = None,
    progress: Progress | None = None,
) -> PhotoGroups:
    """Add the photos of a folder to the collection in `output`, forget those that are gone and have no label, and group those of
    the folder, as `Collection.cluster` does; clusters.csv and clusters.html are written there.

    Given decisions take the place of those in the collection.
    """
    place, folder = Path(output).expanduser(), absolute(photos)
    if place.exists() and not place.is_dir():
        raise ValueError(f"{printable(place)} is a file: pass a folder (--output)")
    clusterer = embedder.clusterer(n_clusters, coarser - finer)
    listed = _without(listed_photos(photos), place / THUMBNAILS)
    check_table(place / TABLE)
    check_page(place / PAGE)
    collection = open_collection(place, embedder)
    with collection.writing(below=folder) as store:
        given = decisions is not None and bool(decisions.decisions)
        kept = decisions if decisions is not None and given else kept_decisions(store, collection.address)
        _check_edits(place, listed.root, kept)
        done = ingest(listed, embedder, store, progress=progress)
        if not done.photos:
            raise ValueError(
                f"no photo in {printable(listed.root)} can be opened; {len(done.problems)} are broken, the first is "
                f"{done.problems[0].reason}"
            )
        if folder.is_dir():
            store.remove([entry.path for entry in gone_photos(store, folder, done) if not entry.label])
        paths, contents = [photo.relative_to(listed.root) for photo in done.photos], [content.hex() for content in done.contents]
        unique = list(dict.fromkeys(done.contents))
        groups = group_photos(listed.root, paths, contents, store.vectors(unique), *clusterer, decisions=kept, progress=progress)
        groups = replace(groups, problems=done.problems, n_new=done.n_new)
        if given:
            replace_decisions(store, collection.address, kept)
        packed = store.looks(unique)
        looks = [Look.unpacked(packed[content]) for content in unique]
        copies = near_groups(np.array([x.gray for x in looks]), np.array([x.colors for x in looks]), progress=progress)
        _write_thumbnails({content.hex(): look.thumbnail for content, look in zip(unique, looks, strict=True)}, place)
        write_page(groups, copies, place / PAGE, thumbnails=THUMBNAILS)
        _write_table(groups, place)
    return groups


def _without(listed: ImageList, own: Path) -> ImageList:
    """The photos without those of an output in the same folder."""
    if not own.resolve().is_relative_to(listed.root.resolve()):
        return listed
    return replace(listed, images=tuple(photo for photo in listed.images if own.resolve() not in photo.resolve().parents))


def _write_thumbnails(thumbnails: Mapping[str, bytes], place: Path) -> None:
    """CONTENT.jpg for every content, where it is missing or damaged; those of other contents are removed."""
    folder = place / THUMBNAILS
    folder.mkdir(exist_ok=True)
    remove_stale_parts(folder)
    wanted = {f"{content}.jpg": data for content, data in thumbnails.items()}
    there = set(os.listdir(folder))
    for name in there - wanted.keys():
        if _OURS.fullmatch(name):
            (folder / name).unlink(missing_ok=True)
    for name, data in wanted.items():
        if name not in there or (folder / name).read_bytes() != data:
            write_unsynced(folder / name, data)


def _check_edits(place: Path, root: Path, decisions: Decisions) -> None:
    """A ValueError if the table holds names, or edits, that nobody asked to keep to."""
    table, written = place / TABLE, _written(place)
    if not table.is_file():
        return
    header = table.read_bytes().partition(b"\n")[0].strip()
    keep = f"keep to it with --decisions {shlex.quote(str(table))}, or move it away"
    if written and _digest(table) not in written:
        edits = Decisions.read_table(table, root).decisions
        if not edits or not set(edits) <= set(decisions.decisions):
            raise ValueError(f"{printable(table)} was changed since it was written: {printable(keep)}")
    elif not decisions.decisions and header.endswith(b",name"):
        raise ValueError(f"{printable(table)} has names, and no decisions are given: pass decisions.json, or {printable(keep)}")


def _write_table(groups: PhotoGroups, place: Path) -> None:
    table = place / TABLE
    before, after = _digest(table), content_hash(groups.table(table)).hex()
    is_ours = before in (_written(place) or [before])
    _write_digests(place, [before, after] if is_ours else [after])  # a kill leaves one table or the other
    groups.save_table(table)
    _write_digests(place, [after])


def _written(place: Path) -> list[str]:
    """The digests of the table that was written here last; of two, if that was interrupted."""
    try:
        return list(map(str, read_checksummed((place / _WRITTEN).read_bytes())["tables"]))
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _write_digests(place: Path, digests: list[str]) -> None:
    write_atomically(place / _WRITTEN, checksummed({"tables": digests}))


def _digest(table: Path) -> str:
    return content_hash(table.read_bytes()).hex() if table.is_file() else ""
