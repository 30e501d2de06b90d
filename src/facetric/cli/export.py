"""`facetric export`: a model as an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from facetric.cli.errors import one_line_errors, said_if_slow, say


def export(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="[RUN] MODEL.onnx",
            help="A run folder, and the file to write. Without a run, the network that comes with the install.",
            show_default=False,
        ),
    ],
    check: Annotated[
        Path | None,
        typer.Option(help="Photos to compare with torch on; some that come with the install when left out.", show_default=False),
    ] = None,
    checkpoint: Annotated[str, typer.Option(help="best (last when there is no best), or last.")] = "best",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
) -> None:
    """Write a model to an ONNX file: from images of the run's size to vectors of length one, any number at a time.

    The file holds the preprocessing, the fingerprint of the model and its calibration. It is run by onnxruntime and compared
    with torch before it is put in place; a difference beyond the tolerance is an error, and nothing is written.

    `facetric embed --model model.onnx` uses the file.
    """
    with one_line_errors("export"):
        from facetric.text import printable

        *runs, output = paths
        if len(runs) > 1:
            raise ValueError(f"pass a run folder and one file to write; got {len(paths)} paths: facetric export RUN model.onnx")
        with said_if_slow("exporting"):
            from facetric.embedder import load

            found = load(runs[0] if runs else None, checkpoint=checkpoint, device="cpu").export(
                output, check=check, overwrite=overwrite
            )
        if found.calibration is None:
            say("export", f"there is no calibration to include: run `facetric evaluate {printable(runs[0])}` first to have one")
    n_bytes = output.expanduser().stat().st_size
    typer.echo(f"{printable(output)}: {found.network}, {found.dim} dimensions, {n_bytes / 1e6:.1f} MB")
    typer.echo(f"input: {found.words()}")
    typer.echo(f"{found.n_checked} images differ from torch by at most {found.difference:.1e}")
