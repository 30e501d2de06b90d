"""`facetric index` and `facetric search`: an index of photos, and the photos in it that are like these."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from facetric.cli.errors import one_line_errors
from facetric.cli.options import Device, Index, Json, Labels, Model, MovedModel, Names, Photos, SomePhotos, VectorFile
from facetric.cli.photos import RESUME, opened_model, opened_vectors, print_problems
from facetric.progress import steps_shown
from facetric.text import counted, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from facetric.photos import Match

app = typer.Typer(no_args_is_help=True, help="Keep an index of photos: add, update, remove, re-embed, status.")


@app.command(
    epilog="Examples: facetric index add birds.index photos --model runs/birds --labels-from-folders; "
    "facetric index add milvus://host:19530/birds photos; facetric index add texts.index --vectors texts.parquet"
)
def add(
    index: Index,
    photos: SomePhotos = None,
    vectors: VectorFile = None,
    names: Names = None,
    labels: Labels = None,
    model: Model = None,
    label: Annotated[str | None, typer.Option(help="Give all these photos this label.")] = None,
    labels_from_folders: Annotated[
        bool, typer.Option("--labels-from-folders", help="The folders directly below PHOTOS are the labels.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Add photos; the index is made with the first. If it is killed, run it again to resume.

    Without --model, the model that the index was made with; for a new index, the network that comes with the install.
    With --vectors nothing is embedded: vectors that were made elsewhere, of these photos or by their names alone.
    """
    if vectors is not None:
        _add_vectors(index, vectors, names, labels, photos, model, device, has_label=bool(label) or labels_from_folders)
        return
    with one_line_errors("index add"):
        opened_vectors(vectors, names, labels)
        if photos is None:
            raise ValueError("pass a folder of photos, or --vectors FILE")
    _change("add", index, index, model, device, photos, label=label, labels_from_folders=labels_from_folders)


def _add_vectors(
    index: str,
    file: Path,
    names: str | None,
    labels: str | None,
    photos: Path | None,
    model: str | None,
    device: str,
    *,
    has_label: bool,
) -> None:
    with one_line_errors("index add", when_interrupted=RESUME):
        from facetric.photos import open_collection

        if has_label:
            raise ValueError("vectors have labels in a column of their file: leave --label and --labels-from-folders out")
        given = opened_vectors(file, names, labels)
        assert given is not None
        opened = open_collection(index, None if model is None else opened_model(None, model, device))
        with steps_shown() as progress:
            done = opened.add_vectors(given, photos=photos, progress=progress)
    typer.echo(f"{printable(index)}: {counted(done.n_photos, 'vector')} ({done.n_new:,} read now)")
    print_problems(done.problems)


@app.command(epilog="Example: facetric index update birds.index photos")
def update(index: Index, photos: Photos, model: Model = None, device: Device = "auto") -> None:
    """Make the index agree with a folder: embed new and changed photos, remove those whose file is gone."""
    _change("update", index, index, model, device, photos)


@app.command(epilog="Example: facetric index remove birds.index photos/old")
def remove(index: Index, photos: Photos) -> None:
    """Forget the photos below a folder, or one photo. Files are never touched."""
    with one_line_errors("index remove"):
        from facetric.photos import open_collection

        n_removed = open_collection(index).remove(photos)
    typer.echo(f"{printable(index)}: {counted(n_removed, 'photo')} removed from the index; files are untouched")


@app.command("re-embed", epilog="Example: facetric index re-embed birds.index --model runs/birds-2")
def re_embed(index: Index, model: Model = None, device: Device = "auto") -> None:
    """Embed all photos of an index with another model. Until it is done, searching uses the old one; labels stay."""
    _change("re-embed", index, None, model, device)


def _change(verb: str, index: str, recorded: str | None, model: str | None, device: str, *photos: Path, **options: Any) -> None:
    """Call this method of the index and print what it did; the model is the one asked for, or that of the `recorded` index."""
    with one_line_errors(f"index {verb}", when_interrupted=RESUME):
        from facetric.photos import open_collection

        opened = open_collection(index, opened_model(recorded, model, device))
        with steps_shown() as progress:
            done = getattr(opened, verb.replace("-", "_"))(*photos, **options, progress=progress)
    n_photos = len(done.contents)
    counts = {"embedded now": done.n_new, "known": n_photos - done.n_new, "removed": done.n_removed}
    listed = [f"{count:,} {what}" for what, count in counts.items() if count or what == "embedded now"]
    typer.echo(f"{printable(index)}: {counted(n_photos, 'photo')} ({', '.join(listed)})")
    print_problems(done.problems)


@app.command(epilog="Example: facetric index status birds.index")
def status(index: Index) -> None:
    """How many photos, of which labels, by which model, and whether their files are still there."""
    with one_line_errors("index status"):
        from facetric.photos import open_collection

        found = open_collection(index).status()
    model = printable(found.model.words)
    copies = found.n_photos - found.n_contents
    typer.echo(f"{printable(index)}: {counted(found.n_photos, 'photo')}, {copies:,} of them exact copies of others")
    typer.echo(f"model: {model} ({found.model.fingerprint[:12]}, {found.model.dim} dimensions)")
    for label, count in found.labels.items():
        typer.echo(f"  {count:7,}  {printable(label) if label else '(no label)'}")
    _say_missing(index, found.missing)


def search(
    index: Index,
    photos: Annotated[
        Path,
        typer.Argument(help="A photo or a folder of photos to search for, a file of vectors, or the name of one of the index."),
    ],
    top: Annotated[int, typer.Option(help="Photos to show for each.")] = 10,
    label: Annotated[str | None, typer.Option(help="Only photos of this label.")] = None,
    at_least: Annotated[float | None, typer.Option(help="Only similarities of at least this.")] = None,
    classify: Annotated[bool, typer.Option("--classify", help="Say which of the labels here a photo has, if any.")] = False,
    unknown_fraction: Annotated[
        float,
        typer.Option(help="With --classify: the fraction of the photos that you expect to have none of the index's labels."),
    ] = 0.5,
    as_json: Json = False,
    page: Annotated[Path | None, typer.Option(help="Write a page with the photos.")] = None,
    model: MovedModel = None,
    device: Device = "auto",
) -> None:
    """Find the photos of an index that are most similar to these, exactly.

    Unknown: nothing is as similar as --at-least says, or the label is more likely wrong than right.
    """
    with one_line_errors("search"):
        from facetric.photos import open_collection, search_page

        opened = open_collection(index)
        opened.check()
        sought = opened_vectors(photos if photos.suffix.lower() in (".npy", ".npz", ".parquet") else None, None, None)
        if sought is None:
            opened = open_collection(index, opened_model(index, model, device))
        found = opened.search(
            sought or photos, top=top, label=label, at_least=at_least, classify=classify, unknown_fraction=unknown_fraction
        )
        if page is not None:
            from facetric.files import write_atomically

            write_atomically(page, search_page(found))
        names = f"{opened.place}/"
    if as_json:
        typer.echo(json.dumps([_record(match) for match in found], indent=1))
    else:
        _print_matches(found, names)
    paths = {hit.entry.path for match in found for hit in match.hits}
    _say_missing(index, sorted(path for path in paths if not os.path.exists(path) and not path.startswith(names)))
    if page is not None:
        typer.echo(f"Written: {printable(page)}", err=as_json)


def _print_matches(found: list[Match], names: str) -> None:
    for match in found:
        typer.echo(f"{printable(match.photo)}")
        if line := match.verdict:
            typer.echo(f"  {printable(line)}")
        for hit in match.hits:
            label = f"  [{printable(hit.entry.label)}]" if hit.entry.label else ""
            typer.echo(f"  {hit.similarity:6.3f}  {printable(hit.entry.path.removeprefix(names))}{label}")


def _record(match: Match) -> dict[str, Any]:
    hits = [
        {
            "path": hit.entry.path.encode("utf-8", "backslashreplace").decode(),
            "label": hit.entry.label or None,
            "similarity": hit.similarity,
            "content": hit.entry.content.hex(),
        }
        for hit in match.hits
    ]
    record = {"photo": match.photo.encode("utf-8", "backslashreplace").decode(), "unknown": match.is_unknown, "hits": hits}
    return record | ({} if match.vote is None else {"vote": vars(match.vote)})


def _say_missing(index: str, missing: Sequence[str]) -> None:
    if missing:
        typer.echo(
            f"{counted(len(missing), 'photo')} missing, the first is {printable(missing[0])}: if the folder was moved, "
            f"`facetric index add {printable(index)} NEW_FOLDER`, then `facetric index remove {printable(index)} OLD_FOLDER`; "
            "nothing is embedded again",
            err=True,
        )
