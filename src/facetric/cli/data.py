"""`facetric data`: commands about datasets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from facetric.cli.errors import one_line_errors
from facetric.progress import progress_bar

if TYPE_CHECKING:
    from rich.console import Console

    from facetric.images.check import DatasetCheck, Finding

app = typer.Typer(no_args_is_help=True, help="Check datasets.", epilog="Example: facetric data check path/to/photos")

_LEAST_SHOWN = 5  # findings of one kind, however small the terminal
_IN_A_LOG = 50  # where there is no terminal


@app.callback()
def main() -> None:
    """Check datasets."""


@app.command(epilog="Example: facetric data check path/to/photos")
def check(
    path: Annotated[Path, typer.Argument(help="The folder of a dataset, or a CSV file path,label[,split].", show_default=False)],
    layout: Annotated[
        str | None,
        typer.Option(help="cub, cars, products, folder, csv or files; detected when left out.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything found as JSON.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 1 for remarks, too.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="List every finding, not only what fits on the screen.")] = False,
) -> None:
    """Open every image of a dataset, and compare its files with its annotations.

    Problems (exit code 1): missing, broken or contradictory files, wrong counts, leaks.

    Remarks: repeated, odd or unused files, classes of one image.
    """
    from rich.console import Console

    with one_line_errors("data check"):
        from facetric.images.check import check_dataset

        try:
            with progress_bar("Opening images") as progress:
                result = check_dataset(path, layout=layout, on_progress=progress)
        except OSError as error:  # a path that cannot be read is a usage error
            raise ValueError(str(error)) from None
    if json:
        from json import dumps

        typer.echo(dumps(result.as_dict(), indent=2))
    else:
        # Not on a terminal: one line per row, so that names can be searched for.
        _print(result, Console() if Console().is_terminal else Console(width=10_000), everything=everything)
    if not result.ok or (strict and result.remarks):
        raise typer.Exit(1)


def _print(result: DatasetCheck, console: Console, *, everything: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    from facetric.text import printable

    console.print(Text(f"{printable(result.path)}: layout {result.layout}"))
    table = Table()
    for column in ("split", "classes", "published", "images", "published"):
        table.add_column(column, justify="left" if column == "split" else "right")
    for split in dict.fromkeys((*result.counts, *result.published)):
        here, published = result.counts.get(split), result.published.get(split)
        table.add_row(
            split,
            f"{here.n_classes:,}" if here else "0",
            f"{published.n_classes:,}" if published else "–",
            f"{here.n_images:,}" if here else "0",
            f"{published.n_images:,}" if published else "–",
        )
    if result.counts:  # empty when the annotations could not be parsed
        console.print(table)
    n_kinds = len({finding.kind for finding in (*result.problems, *result.remarks)})
    n_shown = max(_LEAST_SHOWN, (console.height - 20) // max(n_kinds, 1)) if console.is_terminal else _IN_A_LOG
    for severity, findings in (("Problems", result.problems), ("Remarks", result.remarks)):
        if findings:
            n_most = len(findings) if everything else n_shown
            console.print(_findings_table(f"{severity}: {len(findings):,}", findings, n_shown=n_most))
    verdict = "Fine" if result.ok else f"{len(result.problems):,} problem{'s' if len(result.problems) != 1 else ''}"
    remarks = f", {len(result.remarks):,} remark{'s' if len(result.remarks) != 1 else ''}" if result.remarks else ""
    console.print(Text(f"{verdict}{remarks}: {result.n_files:,} files opened in {result.seconds:.1f} s"))


def _findings_table(title: str, findings: tuple[Finding, ...], *, n_shown: int) -> object:
    from rich.table import Table
    from rich.text import Text

    from facetric.text import printable

    table = Table(title=title, title_justify="left")
    for column in ("what", "where", "why"):
        table.add_column(column, overflow="fold")
    for kind in dict.fromkeys(finding.kind for finding in findings):
        alike = [finding for finding in findings if finding.kind == kind]
        for finding in alike[:n_shown]:
            table.add_row(kind, Text(printable(finding.subject)), Text(printable(finding.detail)))
        if len(alike) > n_shown:
            table.add_row(kind, "…", f"and {len(alike) - n_shown:,} more; --all lists them")
    return table
