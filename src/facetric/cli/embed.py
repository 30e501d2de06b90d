"""`facetric embed`: photos to a file of vectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from facetric.cli.errors import one_line_errors
from facetric.cli.waiting import said_if_slow
from facetric.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from facetric.embedder import Engine
    from facetric.images import Problem

_SHOWN = 10  # broken photos on the screen; all of them are in a file

PHOTOS = typer.Argument(help="A folder of photos, nested and unsorted, or one photo.", show_default=False)
PROCESSES = typer.Option(min=1, help="Processes that embed, each with a network in memory.")
MODEL = typer.Option(
    help="A run folder, or a file of `facetric export`; without it, the network that comes with the install.", show_default=False
)


def embed(
    photos: Annotated[Path, PHOTOS],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The file to write: .parquet, .npz or .csv.", show_default=False)
    ],
    model: Annotated[Path | None, MODEL] = None,
    processes: Annotated[int, PROCESSES] = 1,
    checkpoint: Annotated[str, typer.Option(help="best (last when there is no best), or last.")] = "best",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    engine: Annotated[
        str | None, typer.Option(help="torch, or onnx: the same vectors up to rounding (facetric[onnx]).", show_default="torch")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file that facetric did not write, or of another model.")
    ] = False,
) -> None:
    """Embed every photo in a folder: path, hash of the content, fingerprint of the model and vector, one row each.

    If it is killed, run it again to resume. Run it again later, and only photos of new content are embedded.
    Photos that cannot be opened are left out and listed in NAME.problems.csv beside the output.
    """
    with one_line_errors("embed", when_interrupted="stopped; run it again to continue"):
        with said_if_slow("loading the model"):
            from facetric.embedder import load
            from facetric.photos import embed_folder

            loaded = load(
                model,
                checkpoint=checkpoint,
                device=device,
                engine=cast("Engine | None", engine),
            )
        with progress_bar("Embedding") as progress:
            found = embed_folder(photos, loaded, output, n_processes=processes, overwrite=overwrite, on_progress=progress)
    from facetric.text import printable

    known = found.n_photos - found.n_new
    counts = f"{found.n_new:,} embedded now" + (f", {known:,} known by content" if known else "")
    typer.echo(f"{printable(found.output)}: {found.n_photos:,} photos, {loaded.dim} dimensions ({counts})")
    if found.problems:
        print_problems(found.problems)
        typer.echo(f"{len(found.problems):,} broken and left out, listed in {printable(found.problems_file)}")


def print_problems(problems: Sequence[Problem]) -> None:
    """The first of them, on stderr."""
    from facetric.text import printable

    for problem in problems[:_SHOWN]:
        typer.echo(f"left out: {printable(problem.reason)}", err=True)
    if len(problems) > _SHOWN:
        typer.echo(f"left out: … and {len(problems) - _SHOWN:,} more", err=True)
