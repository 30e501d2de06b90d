"""`cluster_folder`: from a folder of photos to groups, a table and a page, in steps that survive a kill.

OUTPUT/vectors holds the vectors of one model, so that only new photos are embedded the next time; OUTPUT/thumbnails the pictures
of the page.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock, Timeout

from facetric.clustering import Calibration
from facetric.embedder.encoder import Encoder
from facetric.files import remove_stale_parts, sealed, unsealed, write_atomically
from facetric.images.fingerprints import content_digest
from facetric.images.listing import PhotoList, list_photos, not_empty
from facetric.photos.decisions import Decisions
from facetric.photos.grouping import Clusterer
from facetric.photos.groups_page import PAGE, check_page, write_page
from facetric.photos.ingest import embed_list
from facetric.photos.photo_groups import PhotoGroups, check_table, group_photos
from facetric.photos.store import VectorStore
from facetric.photos.thumbnails import make_thumbnails
from facetric.progress import OnStep
from facetric.text import printable

TABLE, _THUMBNAILS, _VECTORS = "clusters.csv", "thumbnails", "vectors"
_WRITTEN = f"{_VECTORS}/table.json"  # what the table was when it was written: edits of it are not overwritten
_STORE = re.compile(r"[0-9a-f]{16}\.sqlite(-wal|-shm)?")


def cluster_folder(
    photos: str | os.PathLike[str],
    encoder: Encoder,
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
    decisions = decisions or Decisions()
    place = None if output is None else Path(output).expanduser()
    listed = not_empty(_listed(photos, place))
    with nullcontext() if place is None else _owned(place, listed.root, decisions), _store(place, encoder) as store:
        done = embed_list(
            listed, encoder, store, n_processes=n_processes, on_progress=lambda n, total: step("Embedding photos", n, total)
        )
        if not done.photos:
            raise ValueError(
                f"no photo in {printable(listed.root)} can be opened; {len(done.problems)} are broken, the first is "
                f"{done.problems[0].reason}"
            )
        vectors = store.vectors(dict.fromkeys(done.contents))
        groups = group_photos(
            listed.root,
            done.photos,
            [content.hex() for content in done.contents],
            vectors,
            clusterer,
            decisions=decisions,
            calibration=calibration,
            made_by=made_by,
            problems=done.problems,
            n_new=done.n_new,
            on_step=lambda name, n, total: step("Clustering", n, total),
        )
        if place is not None:
            _write(groups, place, step)
    return groups


def _write(groups: PhotoGroups, place: Path, step: OnStep) -> None:
    """The pictures, the page and, last, the table."""
    first = groups.first_of_each_content
    paths = [groups.root / groups.photos[row] for row in first]
    copies = make_thumbnails(
        paths,
        [groups.contents[row] for row in first],
        place / _THUMBNAILS,
        on_progress=lambda n, total: step("Thumbnails", n, total),
    )
    write_page(groups, copies, place / PAGE, thumbnails=_THUMBNAILS)
    table = place / TABLE
    before, after = _digest(table), content_digest(groups.table(table)).hex()
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
    return content_digest(table.read_bytes()).hex() if table.is_file() else ""


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
def _owned(place: Path, root: Path, decisions: Decisions) -> Iterator[None]:
    """The output folder, written by one process at a time."""
    if place.exists() and not place.is_dir():
        raise ValueError(f"{printable(place)} is a file: pass a folder (--output)")
    check_table(place / TABLE)
    _check_names(place, root, decisions)
    check_page(place / PAGE)
    (place / _VECTORS).mkdir(parents=True, exist_ok=True)
    lock = FileLock(place / _VECTORS / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise RuntimeError(f"{printable(place)} is being written by another process: wait for it, or stop it") from None
    try:
        remove_stale_parts(place, place / _THUMBNAILS)
        yield
    finally:
        lock.release()


@contextmanager
def _store(place: Path | None, encoder: Encoder) -> Iterator[VectorStore]:
    """The vectors of this model; those of another one are removed when this block has succeeded."""
    with TemporaryDirectory(prefix="facetric-") if place is None else nullcontext(place / _VECTORS) as folder:
        path = Path(folder) / f"{encoder.fingerprint[:16]}.sqlite"
        with VectorStore(path, fingerprint=encoder.fingerprint, dimensions=encoder.dim) as store:
            yield store
        for name in os.listdir(folder):
            if _STORE.fullmatch(name) and not name.startswith(path.name):
                (Path(folder) / name).unlink(missing_ok=True)
