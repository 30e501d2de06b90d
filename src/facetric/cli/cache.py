"""`facetric cache`: list, verify and clean the cache folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from facetric.images.caches import Cache

app = typer.Typer(no_args_is_help=True, epilog="Examples: facetric cache list; facetric cache clean --older-than 30")


@app.callback()
def main() -> None:
    """List, verify and remove cached images and activations.

    They are in $FACETRIC_CACHE, or in facetric in the user's cache folder, and are rebuilt when missing.
    """


@app.command("list", epilog="Examples: facetric cache list; facetric cache list --json")
def list_(json: Annotated[bool, typer.Option("--json", help="Print everything known as JSON.")] = False) -> None:
    """List all caches: what each was made from, when it was last used, and whether it is current.

    Current: its images are unchanged, and the versions that determine its content are those installed.

    Exit status: 0 listed, 2 usage error.
    """
    caches = _found()
    if json:
        from json import dumps

        typer.echo(dumps([cache.as_dict() for cache in caches], indent=2))
        return
    if caches:
        _print_table(caches)
    typer.echo(_total(caches))


@app.command(epilog="Examples: facetric cache clean; facetric cache clean --older-than 30 --yes; facetric cache clean --all")
def clean(
    older_than: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="DAYS", help="Also remove current caches that have not been used for DAYS days.", show_default=False
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove all caches.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove caches that will not be used again, after confirmation.

    These are: caches whose images have changed or are missing; caches made by versions that are no longer installed; old formats;
    leftovers of killed processes. A cache that is being built is left alone, and so are files that facetric did not write.

    Exit status: 0 done, 1 not everything could be removed, 2 usage error.
    """
    import time

    from facetric.images.caches import BEING_BUILT, CURRENT, remove_cache

    if everything and older_than is not None:
        raise typer.BadParameter("--all removes caches of any age: pass --all or --older-than, not both")
    oldest = time.time() - 86_400 * older_than if older_than is not None else float("-inf")
    chosen = [
        cache
        for cache in _found()
        if cache.state != BEING_BUILT and (everything or cache.state != CURRENT or cache.last_used < oldest)
    ]
    if not chosen:
        typer.echo(f"Nothing to remove in {_folder()}.")
        return
    _print_table(chosen)
    if not yes:
        try:
            if not typer.confirm(f"Remove {_total(chosen)}?"):
                typer.echo("Nothing was removed.")
                return
        except typer.Abort:
            typer.echo("\nfacetric cache clean: no answer, so nothing was removed: pass --yes to remove without asking", err=True)
            raise typer.Exit(1) from None
    kept = []
    for cache in chosen:
        try:
            if not remove_cache(cache):
                kept.append(f"{cache.path}: another process is building it")
        except OSError as error:
            kept.append(f"{cache.path}: {error.strerror or error}")
    typer.echo(f"Removed {len(chosen) - len(kept):,} of {len(chosen):,} files.")
    for line in kept:
        typer.echo(f"facetric cache clean: not removed: {line}", err=True)
    if kept:
        raise typer.Exit(1)


@app.command(epilog="Example: facetric cache verify")
def verify() -> None:
    """Read every cache in full and compare all checksums.

    A damaged cache is rebuilt at its next use.

    Exit status: 0 all intact, 1 some are damaged, 2 usage error.
    """
    from facetric.images.caches import verify_caches
    from facetric.progress import progress_bar

    caches = [cache for cache in _found() if cache.kind not in ("unfinished", "lock") and cache.state != "old format"]
    with progress_bar("Reading blocks of 4 MiB") as progress:
        damaged = verify_caches(caches, progress)
    if damaged:
        _print_table(damaged, state="damaged")
    verdict = f"{len(damaged):,} damaged, to be rebuilt at their next use" if damaged else "all intact"
    typer.echo(f"{_total(caches)}: {verdict}.")
    if damaged:
        raise typer.Exit(1)


def _folder() -> Path:
    from facetric.images.array_file import cache_folder

    return cache_folder()


def _found() -> list[Cache]:
    from facetric.images.caches import find_caches

    try:
        return find_caches()
    except OSError as error:
        typer.echo(f"facetric cache: cannot read {error.filename or _folder()}: {error.strerror or error}", err=True)
        raise typer.Exit(1) from None


def _total(caches: Sequence[Cache]) -> str:
    size = _size(sum(cache.n_bytes for cache in caches))
    return f"{len(caches):,} file{'' if len(caches) == 1 else 's'}, {size}, in {_folder()}"


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.2f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.1f} MB"


def _print_table(caches: Sequence[Cache], *, state: str | None = None) -> None:
    from datetime import datetime

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from facetric.text import printable

    table = Table()
    for column in ("kind", "dataset", "what", "images", "size", "last used", "made by", "state", "images in"):
        table.add_column(column, justify="right" if column in ("images", "size") else "left", overflow="fold")
    for cache in sorted(caches, key=lambda cache: (cache.name, cache.kind, cache.path)):
        used = datetime.fromtimestamp(cache.last_used).strftime("%Y-%m-%d %H:%M")
        images = "" if cache.n_images is None else f"{cache.n_images:,}"
        what, name = cache.detail or cache.path.name, cache.name or ("in memory" if cache.kind == "activations" else "")
        row = (cache.kind, name, what, images, _size(cache.n_bytes), used, cache.made_by, state or cache.state, cache.folder)
        table.add_row(*(Text(printable(value)) for value in row))
    # Not on a terminal: one line per row, so that names can be searched for.
    (Console() if Console().is_terminal else Console(width=10_000)).print(table)
