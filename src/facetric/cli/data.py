"""`facetric data` and `facetric cache`: check a dataset; list and clean the caches of images and activations."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from facetric.cli.errors import one_line_errors
from facetric.cli.options import Json
from facetric.progress import steps_shown
from facetric.text import printable

if TYPE_CHECKING:
    from facetric.images import Cache, DatasetCheck

app = typer.Typer(no_args_is_help=True, help="Check datasets.", epilog="Example: facetric data check path/to/photos")
cache_app = typer.Typer(
    no_args_is_help=True,
    help="List and remove cached images and activations: $FACETRIC_CACHE, or facetric in the user's cache folder.",
    epilog="Examples: facetric cache list; facetric cache clean --older-than 30",
)
_N_SHOWN = 50  # findings of one kind


@app.callback()
def data() -> None:
    """Check datasets."""


@app.command(epilog="Example: facetric data check path/to/photos")
def check(
    path: Annotated[Path, typer.Argument(help="The folder of a dataset, or a CSV file path,label[,split].")],
    layout: Annotated[str | None, typer.Option(help="As for --data, or files; detected when left out.")] = None,
    json: Json = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 1 for remarks, too.")] = False,
    everything: Annotated[bool, typer.Option("--all", help=f"List every finding, not only {_N_SHOWN} of a kind.")] = False,
) -> None:
    """Open every image of a dataset, and compare its files with its annotations.

    Problems (exit code 1): missing, broken or contradictory files, wrong counts, leaks.

    Remarks: repeated, odd or unused files, classes of one image.
    """
    with one_line_errors("data check"):
        from facetric.images import check_dataset

        try:
            with steps_shown() as progress:
                result = check_dataset(path, layout=layout, progress=progress)
        except OSError as error:  # a path that cannot be read is a usage error
            raise ValueError(str(error)) from None
    if json:
        typer.echo(dumps(result.as_dict(), indent=2))
    else:
        _print_check(result, n_shown=len(result.findings) if everything else _N_SHOWN)
    if not result.ok or (strict and result.remarks):
        raise typer.Exit(1)


def _print_check(result: DatasetCheck, *, n_shown: int) -> None:
    typer.echo(f"{printable(result.path)}: layout {result.layout}")
    if result.counts:  # empty when the annotations could not be parsed
        rows = []
        for split in dict.fromkeys((*result.counts, *result.published)):
            both = result.counts.get(split), result.published.get(split)
            classes, images = ([f"{getattr(n, what):,}" if n else "–" for n in both] for what in ("n_classes", "n_images"))
            rows.append((split, *classes, *images))
        _print_table(("split", "classes", "published", "images", "published"), rows)
    for title, findings in (("Problems", result.problems), ("Remarks", result.remarks)):
        rows = []
        for kind in dict.fromkeys(finding.kind for finding in findings):
            alike = [finding for finding in findings if finding.kind == kind]
            rows += [(kind, finding.subject, finding.detail) for finding in alike[:n_shown]]
            if len(alike) > n_shown:
                rows.append((kind, "…", f"and {len(alike) - n_shown:,} more; --all lists them"))
        if rows:
            typer.echo(f"{title}: {len(findings):,}")
            _print_table(("what", "where", "why"), rows)
    verdict = "Fine" if result.ok else f"{len(result.problems):,} problem{'s' * (len(result.problems) != 1)}"
    remarks = f", {len(result.remarks):,} remark{'s' * (len(result.remarks) != 1)}" if result.remarks else ""
    typer.echo(f"{verdict}{remarks}: {result.n_files:,} files opened in {result.seconds:.1f} s")


@cache_app.command("list", epilog="Examples: facetric cache list; facetric cache list --json")
def list_(json: Json = False) -> None:
    """List all caches: what each holds, when it was last used, and whether the versions that made it are those installed."""
    with one_line_errors("cache list"):
        from facetric.images import find_caches

        caches = find_caches()
    if json:
        typer.echo(dumps([asdict(cache) for cache in caches], indent=2, default=str))
    else:
        typer.echo(_print_caches(caches))


@cache_app.command(epilog="Examples: facetric cache clean; facetric cache clean --older-than 30 --yes")
def clean(
    older_than: Annotated[
        float | None, typer.Option(min=0, metavar="DAYS", help="Also remove what has not been used for DAYS days.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove all caches.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove caches that will not be used again, after confirmation: those of versions that are no longer installed.

    A cache that is being built is left alone, and so are files that facetric did not write.

    Exit status: 0 done, 1 not everything could be removed, 2 usage error.
    """
    if everything and older_than is not None:
        raise typer.BadParameter("--all removes caches of any age: pass --all or --older-than, not both")
    with one_line_errors("cache clean"):
        from facetric.images import cache_folder, find_caches

        oldest = time.time() - 86_400 * older_than if older_than is not None else float("-inf")
        found = [cache for cache in find_caches() if cache.state != "being built"]
        chosen = [cache for cache in found if everything or cache.state != "current" or cache.last_used < oldest]
        if not chosen:
            typer.echo(f"Nothing to remove in {cache_folder()}.")
            return
        total = _print_caches(chosen)
        if not yes:
            try:
                if not typer.confirm(f"Remove {total}?"):
                    typer.echo("Nothing was removed.")
                    return
            except typer.Abort:
                raise RuntimeError("no answer, so nothing was removed: pass --yes to remove without asking") from None
        kept = [cache for cache in chosen if not cache.remove()]
        typer.echo(f"Removed {len(chosen) - len(kept):,} of {len(chosen):,} caches.")
        if kept:
            raise RuntimeError(f"not removed, another process is building it: {', '.join(str(cache.path) for cache in kept)}")


def _print_caches(caches: Sequence[Cache]) -> str:
    """A table; returns how many there are, of what size, and where."""
    from facetric.images import cache_folder

    rows = []
    for cache in caches:
        used = datetime.fromtimestamp(cache.last_used).strftime("%Y-%m-%d %H:%M")
        rows.append((cache.kind, cache.detail, f"{cache.n_rows:,}", _size(cache.n_bytes), used, cache.made_by, cache.state))
    if rows:
        _print_table(("kind", "what", "rows", "size", "last used", "made by", "state"), rows)
    total = _size(sum(cache.n_bytes for cache in caches))
    return f"{len(caches):,} cache{'s' * (len(caches) != 1)}, {total}, in {cache_folder()}"


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.2f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.1f} MB"


def _print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from tabulate import tabulate

    typer.echo(tabulate([[printable(value) for value in row] for row in rows], headers=columns, disable_numparse=True))
