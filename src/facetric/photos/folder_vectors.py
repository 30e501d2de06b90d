"""`embed_folder`: from a folder of photos to a file of vectors, in steps that survive a kill.

While it runs, OUTPUT.partial/ holds what is done; afterwards it is gone. Vectors that the output holds from before are used again
for photos of the same content.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from facetric.embedder import Embedder, Vectors, check_suffix
from facetric.files import remove_stale_parts, write_atomically
from facetric.images.listing import Problem, list_photos, not_empty
from facetric.photos.ingest import embed_list
from facetric.photos.store import VectorStore
from facetric.progress import Progress
from facetric.text import printable, readable


@dataclass(frozen=True)
class FolderEmbedding:
    """What was written, and what was left out."""

    output: Path
    n_photos: int  # rows of the output
    n_new: int  # photos that were embedded now; the others were known by their content
    problems: tuple[Problem, ...]
    problems_file: Path | None  # where they are listed


def embed_folder(
    photos: str | os.PathLike[str],
    encoder: Embedder,
    output: str | os.PathLike[str],
    *,
    n_processes: int = 1,
    overwrite: bool = False,
    on_progress: Progress | None = None,
) -> FolderEmbedding:
    """Write the vectors of all photos in a folder to `output`, .parquet, .npz or .csv, in the order of their paths.

    A file that facetric did not write, or that holds vectors of another model, is replaced with `overwrite` only. Photos that
    cannot be opened are left out and listed in NAME.problems.csv beside the output.
    """
    output = Path(output).expanduser()
    beside = output.with_name(f"{output.stem}.problems.csv")
    check_suffix(output)
    _check_parent(output)
    kept = _existing(output, encoder, overwrite=overwrite)
    if beside.exists() and not overwrite and not _is_problem_table(beside):
        raise ValueError(f"{printable(beside)} is needed for a list of broken photos and was not written by facetric: move it")
    listed = not_empty(list_photos(photos))
    with _workplace(output) as place, _store(place, encoder) as store:
        if kept is not None:
            store.add_vectors(map(bytes.fromhex, kept.hashes), kept.vectors)
        done = embed_list(listed, encoder, store, n_processes=n_processes, on_progress=on_progress)
        if not done.photos:
            raise ValueError(
                f"no photo in {printable(listed.root)} can be embedded; {len(done.problems)} are broken, the first is "
                f"{done.problems[0].reason}"
            )
        vectors = store.vectors(done.contents)
        paths, contents = tuple(map(readable, done.photos)), tuple(content.hex() for content in done.contents)
        Vectors(vectors, paths, hashes=contents, model=encoder.fingerprint).save(output)
        _write_problems(beside, done.problems)
    return FolderEmbedding(output, len(done.photos), done.n_new, done.problems, beside if done.problems else None)


def _check_parent(output: Path) -> None:
    if output.is_dir():
        raise ValueError(f"{printable(output)} is a folder: pass a file such as {printable(output / 'vectors.npz')} (--output)")
    if not output.parent.is_dir():
        raise ValueError(f"the folder {printable(output.parent)} does not exist: create it, or choose another place (--output)")


def _existing(output: Path, encoder: Embedder, *, overwrite: bool) -> Vectors | None:
    """The vectors that the output holds already, for use again; a ValueError where it must not be replaced."""
    if not output.exists():
        return None
    try:
        found = Vectors.load(output)
    except ValueError:
        if overwrite:
            return None
        raise ValueError(
            f"{printable(output)} exists and was not written by `facetric embed`, or is damaged: choose another --output, or "
            "pass --overwrite"
        ) from None
    if found.model == encoder.fingerprint and found.vectors.shape[1] == encoder.dim:
        return found
    if not overwrite:
        raise ValueError(
            f"{printable(output)} holds vectors of another model ({found.model[:12]}; this one is {encoder.fingerprint[:12]}): "
            "choose another --output, or pass --overwrite"
        )
    return None


@contextmanager
def _workplace(output: Path) -> Iterator[Path]:
    """OUTPUT.partial, owned by one process; removed when the block succeeds, kept for the next attempt when it fails."""
    place = output.with_name(f"{output.name}.partial")
    place.mkdir(exist_ok=True)
    lock = FileLock(place / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise RuntimeError(f"{printable(output)} is being written by another process: wait for it, or stop it") from None
    try:
        remove_stale_parts(output.parent)
        yield place
        shutil.rmtree(place, ignore_errors=True)
    finally:
        lock.release()


def _store(place: Path, encoder: Embedder) -> VectorStore:
    """The store of this model: what another one left unfinished is not touched before this one is done."""
    path = place / f"{encoder.fingerprint[:16]}.sqlite"
    return VectorStore(path, fingerprint=encoder.fingerprint, dimensions=encoder.dim)


def _write_problems(path: Path, problems: Sequence[Problem]) -> None:
    """A table path,problem; no file if there are none."""
    rows = [(readable(one.path), printable(one.reason.encode("utf-8", "backslashreplace").decode())) for one in problems]
    if not rows:
        if _is_problem_table(path):
            path.unlink()
        return
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([("path", "problem"), *rows])
    write_atomically(path, text.getvalue().encode())


def _is_problem_table(path: Path) -> bool:
    """Whether this is a file that `_write_problems` wrote."""
    try:
        with path.open("rb") as file:
            return file.read(13) == b"path,problem\n"
    except OSError:
        return False
