"""From a folder of photos to groups, a table and a page (`cluster_folder`), or to a file of vectors (`embed_folder`).

The output of `cluster_folder` is a collection of these photos: what it holds is neither decoded nor embedded again, and it can
be searched and served. Beside it lie clusters.csv, clusters.html and the thumbnails of the page.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facetric.embedder import Embedder, Vectors, given_vectors
from facetric.files import remove_stale_parts, write_atomically
from facetric.images import Problem, content_hash
from facetric.photos.arrangement import How
from facetric.photos.collection import gone_photos, open_collection
from facetric.photos.decisions import Decisions
from facetric.photos.given import ingest_vectors, model_of
from facetric.photos.grouping import clusterer_of
from facetric.photos.groups import TABLE_MARK, PhotoGroups, check_target, group_photos
from facetric.photos.ingest import absolute, ingest, listed_photos, refuse_none
from facetric.photos.near import near_groups, sketches
from facetric.photos.pages import MARK, write_page
from facetric.photos.sqlite_store import FILE, SqliteStore
from facetric.photos.store import Added, Model, check_ours, csv_table, is_ours
from facetric.progress import Progress
from facetric.text import printable, readable

TABLE, PAGE, THUMBNAILS = "clusters.csv", "clusters.html", "thumbnails"
_OURS = re.compile(r"[0-9a-f]{32}\.jpg")
_PROBLEMS = b"path,problem\n"


def cluster_folder(
    photos: str | os.PathLike[str] | None,
    embedder: Embedder | None,
    output: str | os.PathLike[str],
    *,
    vectors: Vectors | None = None,
    n_clusters: int | None = None,
    finer: int = 0,
    coarser: int = 0,
    decisions: Decisions | None = None,
    links: Decisions | None = None,
    earlier: Sequence[str | os.PathLike[str]] = (),
    copy_to: str | os.PathLike[str] | None = None,
    link_to: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> PhotoGroups:
    """Add the photos of a folder to the collection in `output`, forget those that are gone and have no label, and group those of
    the folder, as `Collection.cluster` does; clusters.csv and clusters.html are written there, and folders as
    `PhotoGroups.arrange` makes them to `copy_to` and `link_to`.

    `vectors` that were made elsewhere take the place of embedding: of the photos, or without photos under their names. They need
    no embedder; the one that made them brings what it knows about which belong together.

    Given decisions take the place of those in the collection; links, as `read_links` finds them in a table, come beside them. The
    names that people gave in `earlier` collections teach which photos belong together. A kill at any time loses nothing: run it
    again.
    """
    place = Path(output).expanduser()
    if vectors is not None:
        vectors = given_vectors(vectors)
        embedder = model_of(vectors, embedder)
    if embedder is None or (photos is None and vectors is None):
        raise ValueError("there is nothing to group: pass a folder of photos, or a file of vectors (vectors=)")
    folder = absolute(place if photos is None else photos)
    targets: dict[How, str | os.PathLike[str] | None] = {"copy": copy_to, "link": link_to}
    folders = [(Path(target), how) for how, target in targets.items() if target is not None]
    for target, how in folders:
        if photos is None:
            raise ValueError(f"names without photos cannot become folders: pass the folder of photos, or leave {how}_to= out")
        check_target(folder, target, how)
    if place.exists() and not place.is_dir():
        raise ValueError(f"{printable(place)} is a file: pass a folder")
    clusterer = clusterer_of(embedder, n_clusters, finer - coarser, _named(earlier, embedder))
    listed, own = None if photos is None else listed_photos(photos), (place / THUMBNAILS).resolve()
    root = folder if listed is None else listed.root
    if listed is not None and own.is_relative_to(root.resolve()):
        listed = replace(listed, images=tuple(photo for photo in listed.images if own not in photo.resolve().parents))
    check_ours(place / TABLE, TABLE_MARK, "cluster")
    check_ours(place / PAGE, MARK, "cluster")
    with open_collection(place, embedder).writing(below=folder) as store:
        assert isinstance(store, SqliteStore)
        kept = decisions if decisions is not None and decisions.decisions else store.decisions()
        if links is not None:
            known = {decision.key for decision in kept.decisions}
            new = tuple(decision for decision in links.decisions if decision.key not in known)
            kept = Decisions((*kept.decisions, *new)) if new else kept
        _check_edits(place / TABLE, None if listed is None else root, kept, store)
        if vectors is not None:
            done = ingest_vectors(vectors, store, folder, listed, progress=progress)
        elif listed is not None:
            done = ingest(listed, embedder, store, progress=progress)
            refuse_none(done.contents, root, done.problems)
        if folder.is_dir():
            store.remove([entry.path for entry in gone_photos(store, folder, done) if not entry.label or listed is None])
        unique = list(dict.fromkeys(done.contents.values()))
        groups = group_photos(root, done.contents, store.vectors(unique), *clusterer, decisions=kept, progress=progress)
        noun = "photo" if photos is not None else "vector"
        groups = replace(groups, problems=done.problems, n_new=done.n_new, noun=noun)
        if kept is decisions or links is not None:
            store.replace_decisions(kept)
        looks, copies = store.looks(unique), np.arange(len(unique))
        if listed is not None:
            copies = near_groups(*sketches([looks[content] for content in unique]), progress=progress)
            _write_thumbnails({content.hex(): looks[content].thumbnail for content in unique}, place)
        write_page(groups, copies, place / PAGE, thumbnails="" if listed is None else THUMBNAILS)
        _write_table(groups, place / TABLE, store)
    for target, how in folders:
        groups.arrange(target, how, progress=progress)
    return groups


def _named(earlier: Sequence[str | os.PathLike[str]], embedder: Embedder) -> dict[str, NDArray[np.float32]]:
    """What people named in these collections; photos of one name in two of them are of one class."""
    found: dict[str, list[NDArray[np.float32]]] = {}
    for place in earlier:
        collection = open_collection(place, embedder)
        collection.check()
        for name, vectors in collection.named().items():
            found.setdefault(name, []).append(vectors)
        collection.close()
    if earlier and len(found) < 2:
        places = ", ".join(printable(place) for place in earlier)
        raise ValueError(
            f"two named groups of two photos or more teach what belongs together; {places} has {len(found)}: name groups on its "
            "page first, or leave it out"
        )
    return {name: np.concatenate(parts) for name, parts in found.items()}


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
            write_atomically(folder / name, data, sync=False)


def _check_edits(table: Path, root: Path | None, decisions: Decisions, store: SqliteStore) -> None:
    """A ValueError if the table holds names, or edits, that nobody asked to keep to."""
    written = store.noted(TABLE).split()
    if not table.is_file() or _digest(table) in written:
        return
    keep = f"keep to it with `facetric cluster … --decisions {shlex.quote(str(table))}`, or move it away"
    if written:
        edits = Decisions.read_table(table, root).decisions
        if not edits or not set(edits) <= set(decisions.decisions):
            raise ValueError(f"{printable(table)} was changed since it was written: {printable(keep)}")
    elif not decisions.decisions and table.read_bytes().partition(b"\n")[0].strip().endswith(b",name"):
        raise ValueError(f"{printable(table)} has names, and no decisions are given: pass decisions.json, or {printable(keep)}")


def _write_table(groups: PhotoGroups, table: Path, store: SqliteStore) -> None:
    """The store notes what is written: edits of it are not overwritten. A kill leaves one table or the other, and both noted."""
    before, after, written = _digest(table), content_hash(groups.table(table)).hex(), store.noted(TABLE).split()
    store.note(TABLE, f"{before} {after}" if before in (written or [before]) else after)
    groups.save_table(table)
    store.note(TABLE, after)


def _digest(table: Path) -> str:
    return content_hash(table.read_bytes()).hex() if table.is_file() else ""


def embed_folder(
    photos: str | os.PathLike[str],
    embedder: Embedder,
    output: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Added:
    """Write the vectors of all photos in a folder to `output`, .parquet, .npz or .csv, in the order of their paths.

    While it runs, OUTPUT.partial/ holds what is done; afterwards it is gone. A file that facetric did not write, or that holds
    vectors of another model, is replaced with `overwrite` only; else its vectors are used again for photos of the same content.
    Photos that cannot be opened are left out and listed in NAME.problems.csv beside the output.
    """
    output = Path(output).expanduser()
    beside, place = output.with_name(f"{output.stem}.problems.csv"), output.with_name(f"{output.name}.partial")
    Vectors.format_of(output)
    if output.is_dir():
        raise ValueError(f"{printable(output)} is a folder: pass a file such as {printable(output / 'vectors.npz')}")
    check_ours(beside, _PROBLEMS, "embed", overwrite=overwrite)
    kept = _existing(output, embedder, overwrite=overwrite)
    listed = listed_photos(photos)
    if SqliteStore.recorded(str(place)) is not None:
        raise ValueError(f"{printable(place)} is an index, and this would be its place meanwhile: choose another output")
    with SqliteStore.alone(str(place)):
        with SqliteStore(str(place), Model(embedder.fingerprint, embedder.dim, embedder.run)) as store:
            store.keeps_looks = False
            store.add([], kept)
            done = ingest(listed, embedder, store, progress=progress)
            refuse_none(done.contents, listed.root, done.problems)
            vectors = store.vectors(done.contents.values())
        paths = tuple(readable(photo.relative_to(listed.root)) for photo in done.contents)
        hashes = tuple(content.hex() for content in done.contents.values())
        Vectors(vectors, paths, hashes=hashes, model=embedder.fingerprint).save(output)
        _write_problems(beside, done.problems, listed.root)
        for file in (place / "lock", *place.glob(f"{FILE}*")):  # nothing else in the folder is ours
            file.unlink(missing_ok=True)
    with suppress(OSError):
        place.rmdir()
    return done


def _existing(output: Path, embedder: Embedder, *, overwrite: bool) -> dict[bytes, NDArray[np.float32]]:
    """The vectors that the output holds already, by content; a ValueError where it must not be replaced."""
    if not output.exists():
        return {}
    try:
        found = Vectors.load(output)
        if found.model == embedder.fingerprint and found.hashes:
            return dict(zip(map(bytes.fromhex, found.hashes), found.vectors, strict=True))
        reason = f"holds vectors of another model ({found.model[:12]}; this one is {embedder.fingerprint[:12]})"
    except ValueError:
        reason = "exists and was not written by `facetric embed`, or is damaged"
    if overwrite:
        return {}
    raise ValueError(f"{printable(output)} {reason}: choose another file, or pass overwrite=True")


def _write_problems(path: Path, problems: Sequence[Problem], root: Path) -> None:
    """A table path,problem; no file if there are none."""
    if problems:
        paths = [readable(Path(os.path.relpath(root / one.path, root))) for one in problems]
        reasons = [printable(one.reason) for one in problems]
        write_atomically(path, _PROBLEMS + csv_table(zip(paths, reasons, strict=True)))
    elif is_ours(path, _PROBLEMS):
        path.unlink(missing_ok=True)
