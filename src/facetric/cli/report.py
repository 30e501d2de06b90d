"""`facetric report`: report.html of a run, and its figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from facetric.cli.errors import one_line_errors, say
from facetric.cli.waiting import steps_shown


def report(
    run: Annotated[Path, typer.Argument(help="A run folder such as runs/glyphs.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(help="Where to write the page; report.html in the run folder when left out.", show_default=False),
    ] = None,
    images: Annotated[bool, typer.Option("--images/--no-images", help="Include thumbnails of the images.")] = True,
    pictures: Annotated[bool, typer.Option("--pictures/--no-pictures", help="Also draw figures/*.png.")] = True,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the map.")] = 0,
) -> None:
    """Write report.html: scores, map, clusters, failed queries, curves and configuration of a run, in one file.

    The page works from disk, without a network. Evaluate the run first: without scores and embeddings those sections are missing.

    Figures (t-SNE map with the images in place, curves) go to figures/ in the run folder.
    """
    with one_line_errors("report"):
        from facetric.report import write_report
        from facetric.text import printable

        if output is not None and output.is_dir():
            raise ValueError(f"--output is the page to write, and {output} is a folder: pass the name of a file in it")
        try:
            with steps_shown() as on_step:
                made = write_report(run, output=output, images=images, figures=pictures, seed=seed, progress=on_step)
        except OSError as error:
            if error.filename is None:
                raise
            raise OSError(
                f"cannot write {error.filename}: {error.strerror}; free some space, change the permissions or choose --output"
            ) from None
    for note in made.notes:
        say("report", note)
    for figure in made.figures:
        typer.echo(printable(figure))
    typer.echo(f"{printable(made.page)} ({made.page.stat().st_size / 1e6:.1f} MB): open it in a browser")
