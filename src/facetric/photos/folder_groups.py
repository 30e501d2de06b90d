"""`cluster_folder`: from a folder of photos to groups, a table and a page, in steps that survive a kill.

OUTPUT is an index of these photos: what it holds is neither decoded nor embedded again, and it can be searched and served. It
also keeps decisions.json, as a service does, and the thumbnails of the page.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock, Timeout

from facetric.clustering import Calibration
from facetric.embedder import Embedder
from facetric.files import remove_stale_parts, sealed, unsealed, write_atomically
from facetric.images import content_hash
from facetric.images.listing import PhotoList, list_photos, not_empty
from facetric.photos.contract import About
from facetric.photos.decisions import Decisions
from facetric.photos.grouping import Clusterer
from facetric.photos.groups_page import PAGE, check_page, write_page
from facetric.photos.ingest import embed_list
from facetric.photos.looks import near_copies, write_thumbnails
from facetric.photos.photo_groups import PhotoGroups, check_table, group_photos
from facetric.photos.places import absolute, is_below
from facetric.photos.sqlite_store import IndexFolder, SqliteStore
from facetric.progress import OnStep
from facetric.text import printable

TABLE, DECISIONS, _THUMBNAILS = "clusters.csv", "decisions.json", "thumbnails"
_BEFORE = "decisions-before.json"  # those that others replaced
_WRITTEN = ".clusters.json"  # what the table was when it was written: edits of it are not overwritten


def cluster_folder(
    photos: str | os.PathLike[str],
    encoder: Embedder,
    clusterer: Clusterer,
    output: str | os.PathLike[str] | None = None,
    *,
    decisions: Decisions | None = None,
    calibration: Calibration | None = None,
    made_by: str = "",
    n_processes: int = 1,
    on_step: OnStep | None = None,
) -> PhotoGroups:
    """Group the photos of a folder; with an `output` folder, write clusters.csv and clusters.html there.

    `decisions` are kept to. The page says what the `calibration` of the clusterer promises, and `made_by`.
    """
    step = on_step or (lambda name, done, total: None)
    place = None if output is None else Path(output).expanduser()
    listed = not_empty(_listed(photos, place))
    decisions = _decisions(place, decisions)
    with _owned(place, listed.root, decisions) as folder, _store(folder, absolute(photos), encoder) as store:
        root = absolute(listed.root)
        full = PhotoList(root, tuple(root / photo for photo in listed.photos), listed.problems, listed.n_others)
        done = embed_list(
            full, encoder, store, n_processes=n_processes, on_progress=lambda n, total: step("Embedding photos", n, total)
        )
        if not done.photos:
            raise ValueError(
                f"no photo in {printable(listed.root)} can be opened; {len(done.problems)} are broken, the first is "
                f"{done.problems[0].reason}"
            )
        if absolute(photos).is_dir():
            _forget_gone(store, root, {str(photo) for photo in done.photos})
        contents = list(dict.fromkeys(done.contents))
        groups = group_photos(
            listed.root,
            [photo.relative_to(root) for photo in done.photos],
            [content.hex() for content in done.contents],
            store.vectors(contents),
            clusterer,
            decisions=decisions,
            calibration=calibration,
            made_by=made_by,
            problems=done.problems,
            n_new=done.n_new,
            on_step=lambda name, n, total: step("Clustering", n, total),
        )
        if place is not None:
            _keep_decisions(place, decisions)
            looks = store.looks(contents)
            step("Copies", 0, 1)
            write_thumbnails(looks, place / _THUMBNAILS)
            write_page(groups, near_copies(contents, looks), place / PAGE, thumbnails=_THUMBNAILS)
            step("Copies", 1, 1)
            _write_table(groups, place)
    return groups


def _decisions(place: Path | None, given: Decisions | None) -> Decisions:
    """Those that are given, else those that the output keeps."""
    if given is not None and given.decisions:
        return given
    if place is not None and (place / DECISIONS).is_file():
        return Decisions.read(place / DECISIONS)
    return Decisions()


def _keep_decisions(place: Path, decisions: Decisions) -> None:
    """In the output, so that the next command and a service find them; those that they replace are kept beside."""
    file = place / DECISIONS
    before = Decisions.read(file) if file.is_file() else Decisions()
    if decisions == before:
        return
    lock = FileLock(place / f".{DECISIONS}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise RuntimeError(f"{printable(file)} belongs to a running `facetric serve`: stop it first") from None
    try:
        if not set(before.decisions) <= set(decisions.decisions):
            write_atomically(place / _BEFORE, file.read_bytes())
        write_atomically(file, sealed(decisions.as_dict()))
    finally:
        lock.release()


def _forget_gone(store: SqliteStore, root: Path, kept: set[str]) -> None:
    """Photos of the folder whose files are gone; those that have a label stay until `facetric index update`."""
    gone = [entry.path for entry in store.entries() if is_below(entry.path, root) and entry.path not in kept and not entry.label]
    if gone:
        store.remove(gone)


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
        return list(map(str, unsealed((place / _WRITTEN).read_bytes())["tables"]))
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _write_digests(place: Path, digests: list[str]) -> None:
    write_atomically(place / _WRITTEN, sealed({"tables": digests}))


def _digest(table: Path) -> str:
    return content_hash(table.read_bytes()).hex() if table.is_file() else ""


def _check_names(place: Path, root: Path, decisions: Decisions) -> None:
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


def _listed(photos: str | os.PathLike[str], place: Path | None) -> PhotoList:
    """The photos, without the thumbnails of an output in the same folder."""
    listed = list_photos(photos)
    if place is None:
        return listed
    own = (place / _THUMBNAILS).resolve()
    if not own.is_relative_to(listed.root.resolve()):
        return listed
    kept = tuple(photo for photo in listed.photos if own not in (listed.root / photo).resolve().parents)
    return PhotoList(listed.root, kept, listed.problems, listed.n_others)


@contextmanager
def _owned(place: Path | None, root: Path, decisions: Decisions) -> Iterator[IndexFolder]:
    """The index in the output folder, written by one process at a time; in a temporary folder without an output."""
    if place is not None:
        if place.exists() and not place.is_dir():
            raise ValueError(f"{printable(place)} is a file: pass a folder (--output)")
        check_table(place / TABLE)
        _check_names(place, root, decisions)
        check_page(place / PAGE)
    with TemporaryDirectory(prefix="facetric-") if place is None else nullcontext(place) as path:
        folder = IndexFolder(Path(path))
        folder.lock()
        try:
            remove_stale_parts(Path(path) / _THUMBNAILS)
            yield folder
        finally:
            folder.unlock()


@contextmanager
def _store(folder: IndexFolder, photos: Path, encoder: Embedder) -> Iterator[SqliteStore]:
    """The store of this model. That of another model gives its labels, and is removed when this block has succeeded."""
    before = folder.known()
    about = About(encoder.fingerprint, encoder.dim, getattr(encoder, "run", None))
    labels: dict[str, str] = {}
    if before is not None and before.model != about.model:
        with folder.store(before, read_only=True) as old:
            labels = {entry.path: entry.label for entry in old.entries() if entry.label}
            if any(not is_below(entry.path, photos) for entry in old.entries()):
                model = f"--model {shlex.quote(about.run)}" if about.run else ""
                raise ValueError(
                    f"{printable(folder.path)} holds other photos too, by another model: choose another --output, or embed "
                    f"all of them again with `{folder.embed_again(model)}`"
                )
    with folder.store(about, read_only=False) as store:
        if before is None:
            folder.write(about)
        if labels:
            store.set_labels(labels)
        yield store
    if before is not None and before != about:
        folder.write(about)
