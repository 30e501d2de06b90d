"""`facetric duplicates`: groups of photos that are copies of each other or look alike."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from facetric.cli.embed import MODEL, PHOTOS, print_problems
from facetric.cli.errors import one_line_errors
from facetric.cli.waiting import steps_shown

if TYPE_CHECKING:
    from facetric.photos import Duplicates, Group

_SHOWN = 10  # groups of each kind on the screen
_MEMBERS = 6
_TITLES = {"exact": "Exact copies", "near": "Near copies (resized, recompressed, slightly cropped)", "look-alike": "Look-alikes"}


def duplicates(
    photos: Annotated[Path, PHOTOS],
    model: Annotated[Path | None, MODEL] = None,
    look_alikes: Annotated[
        bool, typer.Option(help="Also embed the photos and compare their vectors; takes longer than the rest.")
    ] = True,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write all groups to this .csv file; or an index, where nothing is embedded again."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that facetric did not write.")] = False,
) -> None:
    """Find copies among the photos of a folder: exact, near (resized, recompressed, cropped by up to 5%), and look-alikes.

    Each group names the photo to keep: most pixels, then most bytes, then the shortest name. Nothing is deleted.
    """
    with one_line_errors("duplicates"), steps_shown() as on_step:
        from facetric.photos import find_duplicates

        collection = None if output is None or output.suffix.lower() == ".csv" or output.is_file() else output
        table = output if collection is None else collection / "duplicates.csv"
        if table is not None and table.parent != collection:
            from facetric.photos.duplicates import check_table

            check_table(table, overwrite=overwrite)
        if model is not None and not look_alikes:
            raise ValueError("--model is what look-alikes are compared by: pass --model or --no-look-alikes, not both")
        encoder = None
        if look_alikes:
            from facetric.cli.index import opened_model
            from facetric.embedder import load

            encoder = load(model, device=device) if collection is None else opened_model(str(collection), model, device)
        found = find_duplicates(photos, encoder, collection=collection, on_step=on_step)
        if table is not None:
            found.save(table, overwrite=overwrite)
    _print(found, table)


def _print(found: Duplicates, output: Path | None) -> None:
    from facetric.text import printable

    for kind, title in _TITLES.items():
        if groups := found.of_kind(kind):
            typer.echo(f"{title}: {len(groups):,} group{'s' * (len(groups) != 1)}")
            for group in groups[:_SHOWN]:
                _print_group(group)
            if len(groups) > _SHOWN:
                typer.echo(f"  … and {len(groups) - _SHOWN:,} more{'' if output else '; --output FILE.csv lists all'}")
    similarity = "" if found.similarity is None else f"; look-alikes have a cosine similarity of {found.similarity:.3f} or more"
    typer.echo(f"{found.n_photos:,} photos, {found.n_copies:,} of them copies of others{similarity}. Nothing was deleted.")
    if output is not None:
        typer.echo(f"Written: {printable(output)}")
    print_problems(found.problems)


def _print_group(group: Group) -> None:
    from facetric.text import printable

    for photo, suggestion in list(zip(group.photos, group.suggestions, strict=True))[:_MEMBERS]:
        size = f"{photo.width} × {photo.height}, {photo.n_bytes / 1000:,.0f} kB"
        typer.echo(f"  {'┌' if suggestion == 'keep' else '│'} {suggestion:9}  {printable(photo.path)}  ({size})")
    if len(group.photos) > _MEMBERS:
        typer.echo(f"  │ … and {len(group.photos) - _MEMBERS:,} more")
