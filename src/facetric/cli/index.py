"""`facetric index` and `facetric search`: an index of photos, and the photos in it that are like these."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from facetric.cli.embed import MODEL, PHOTOS, PROCESSES, print_problems
from facetric.cli.errors import one_line_errors
from facetric.cli.waiting import said_if_slow
from facetric.progress import progress_bar

if TYPE_CHECKING:
    from facetric.embedder import Embedder
    from facetric.photos import Added, Collection, Match, Status

app = typer.Typer(no_args_is_help=True, help="Keep an index of photos: add, update, remove, re-embed, status.")

INDEX = typer.Argument(
    help="The folder of the index, or milvus://host:19530/collection, which may also be written --store milvus://…",
    show_default=False,
)
DEVICE = typer.Option(help="auto, cpu, cuda or mps.")
_FOLDER = "facetric index add birds.index photos --model runs/birds --labels-from-folders"
_MILVUS = "facetric index add --store milvus://host:19530/birds photos"
_RESUME = "stopped; run it again to continue"


class IndexCommand(TyperCommand):
    """A command whose first argument, INDEX, may also be written --store ADDRESS."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _store_first(args))


def _store_first(args: list[str]) -> list[str]:
    """The value of --store as the first argument.

    >>> _store_first(["photos", "--store", "milvus://host/birds"]), _store_first(["i", "photos"])
    (['milvus://host/birds', 'photos'], ['i', 'photos'])
    """
    for i, arg in enumerate(args):
        if arg == "--store" and i + 1 < len(args):
            return [args[i + 1], *args[:i], *args[i + 2 :]]
        if arg.startswith("--store="):
            return [arg.removeprefix("--store="), *args[:i], *args[i + 1 :]]
    return args


@app.command(cls=IndexCommand, epilog=f"Examples: {_FOLDER}; {_MILVUS}")
def add(
    index: Annotated[str, INDEX],
    photos: Annotated[Path, PHOTOS],
    model: Annotated[Path | None, MODEL] = None,
    label: Annotated[str | None, typer.Option(help="Give all these photos this label.", show_default=False)] = None,
    labels_from_folders: Annotated[
        bool, typer.Option("--labels-from-folders", help="The folders directly below PHOTOS are the labels.")
    ] = False,
    processes: Annotated[int, PROCESSES] = 1,
    device: Annotated[str, DEVICE] = "auto",
) -> None:
    """Add photos; the index is made with the first. If it is killed, run it again to resume.

    Without --model, the model that the index was made with; for a new index, the network that comes with the install.
    """
    with one_line_errors("index add", when_interrupted=_RESUME):
        opened = _opened(index, model, device)
        with progress_bar("Embedding") as progress:
            done = opened.add(
                photos, label=label, labels_from_folders=labels_from_folders, n_processes=processes, on_progress=progress
            )
    _print_change(index, done)


@app.command(cls=IndexCommand, epilog="Example: facetric index update birds.index photos")
def update(
    index: Annotated[str, INDEX],
    photos: Annotated[Path, PHOTOS],
    model: Annotated[Path | None, MODEL] = None,
    processes: Annotated[int, PROCESSES] = 1,
    device: Annotated[str, DEVICE] = "auto",
) -> None:
    """Make the index agree with a folder: embed new and changed photos, remove those whose file is gone."""
    with one_line_errors("index update", when_interrupted=_RESUME):
        opened = _opened(index, model, device)
        with progress_bar("Embedding") as progress:
            done = opened.update(photos, n_processes=processes, on_progress=progress)
    _print_change(index, done)


@app.command(cls=IndexCommand, epilog="Example: facetric index remove birds.index photos/old")
def remove(
    index: Annotated[str, INDEX],
    photos: Annotated[Path, PHOTOS],
) -> None:
    """Forget the photos below a folder, or one photo. Files are never touched."""
    with one_line_errors("index remove"):
        from facetric.photos.places import remove_photos

        n_removed = remove_photos(index, photos)
    typer.echo(f"{_printable(index)}: {n_removed:,} photos removed from the index; their files are untouched")


@app.command("re-embed", cls=IndexCommand, epilog="Example: facetric index re-embed birds.index --model runs/birds-2")
def re_embed(
    index: Annotated[str, INDEX],
    model: Annotated[Path | None, MODEL] = None,
    processes: Annotated[int, PROCESSES] = 1,
    device: Annotated[str, DEVICE] = "auto",
) -> None:
    """Embed all photos of an index with another model. Until it is done, searching uses the old one; labels stay."""
    with one_line_errors("index re-embed", when_interrupted=_RESUME):
        with said_if_slow("loading the model"):
            from facetric.embedder import load
            from facetric.photos import open_collection

            loaded = load(model, device=device)
        with progress_bar("Embedding") as progress:
            done = open_collection(index, loaded).re_embed(n_processes=processes, on_progress=progress)
    _print_change(index, done)


@app.command(cls=IndexCommand, epilog="Example: facetric index status birds.index")
def status(index: Annotated[str, INDEX]) -> None:
    """How many photos, of which labels, by which model, and whether their files are still there."""
    with one_line_errors("index status"):
        from facetric.photos.places import status_of

        found = status_of(index)
    _print_status(index, found)


def search(
    index: Annotated[str, INDEX],
    photos: Annotated[Path, typer.Argument(help="A photo, or a folder of photos, to search for.", show_default=False)],
    top: Annotated[int, typer.Option(help="Photos to show for each.")] = 10,
    label: Annotated[str | None, typer.Option(help="Only photos of this label.", show_default=False)] = None,
    at_least: Annotated[
        float | None,
        typer.Option(help="Only similarities of at least this; without it, by the calibration of the run.", show_default=False),
    ] = None,
    classify: Annotated[bool, typer.Option("--classify", help="Have the neighbors vote for a label.")] = False,
    foreign: Annotated[
        float, typer.Option(help="With --classify: the share of the photos that you expect to have none of the index's labels.")
    ] = 0.5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    page: Annotated[Path | None, typer.Option(help="Write a page with the pictures.", show_default=False)] = None,
    model: Annotated[Path | None, typer.Option(help="Where the run of the index is now.", show_default=False)] = None,
    device: Annotated[str, DEVICE] = "auto",
) -> None:
    """Find the photos of an index that are most similar to these, exactly.

    Unknown: nothing is similar enough, or the label that the neighbors vote for is more likely wrong than right.
    """
    with one_line_errors("search"):
        from facetric.photos.places import existing

        existing(index)
        opened = _opened(index, model, device)
        found = opened.search(photos, top=top, label=label, at_least=at_least, classify=classify, foreign=foreign)
        if page is not None:
            from facetric.files import write_atomically
            from facetric.photos.search_page import page as drawn

            write_atomically(page, drawn(found))
    if as_json:
        typer.echo(json.dumps([_record(match) for match in found], indent=1))
    else:
        _print_matches(found)
    _warn_missing(index, found)
    if page is not None:
        typer.echo(f"Written: {_printable(page)}", err=as_json)


def _opened(index: str, model: Path | None, device: str) -> Collection:
    from facetric.photos import open_collection

    return open_collection(index, opened_model(index, model, device))


def opened_model(index: str, model: Path | None, device: str) -> Embedder:
    """The model that is asked for, or else that of the index, or for a new one the packaged network."""
    with said_if_slow("loading the model"):
        from facetric.embedder import load
        from facetric.photos import recorded_run

        about = recorded_run(index)
        run: Path | str | None = model if model is not None or about is None else about.run
        if model is None and run is not None and not Path(run).exists():
            raise ValueError(
                f"the model {_printable(run)} of {_printable(index)} is not there any more: pass its new place (--model)"
            )
        return load(run, device=device)


def _print_change(index: str, done: Added) -> None:
    counts = {"embedded now": done.n_new, "known": done.n_photos - done.n_new, "removed": done.n_removed}
    listed = [f"{count:,} {what}" for what, count in counts.items() if count or what == "embedded now"]
    typer.echo(f"{_printable(index)}: {done.n_photos:,} photos ({', '.join(listed)})")
    print_problems(done.problems)


def _print_status(index: str, found: Status) -> None:
    model = _printable(found.about.run or "the packaged network")
    copies = found.n_photos - found.n_contents
    typer.echo(f"{_printable(index)}: {found.n_photos:,} photos, {copies:,} of them exact copies of others")
    typer.echo(f"model: {model} ({found.about.model[:12]}, {found.about.dimensions} dimensions)")
    for label, count in found.labels.items():
        typer.echo(f"  {count:7,}  {_printable(label) if label else '(no label)'}")
    if found.missing:
        _say_missing(index, len(found.missing), found.missing[0])


def _print_matches(found: list[Match]) -> None:
    from facetric.photos.search_page import verdict

    for match in found:
        typer.echo(f"{_printable(match.photo)}")
        if line := verdict(match):
            typer.echo(f"  {_printable(line)}")
        for hit in match.hits:
            label = f"  [{_printable(hit.entry.label)}]" if hit.entry.label else ""
            typer.echo(f"  {hit.similarity:6.3f}  {_printable(hit.entry.path)}{label}")


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


def _warn_missing(index: str, found: list[Match]) -> None:
    missing = {hit.entry.path for match in found for hit in match.hits if not Path(hit.entry.path).exists()}
    if missing:
        _say_missing(index, len(missing), min(missing))


def _say_missing(index: str, count: int, first: str) -> None:
    typer.echo(
        f"{count:,} photos are not where they were, the first is {_printable(first)}: if their folder was moved, "
        f"`facetric index add {_printable(index)} NEW_FOLDER`, then `facetric index remove {_printable(index)} OLD_FOLDER`; "
        "nothing is embedded again",
        err=True,
    )


def _printable(text: object) -> str:
    from facetric.text import printable

    return printable(text)
