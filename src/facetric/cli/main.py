"""The commands. Heavy imports stay inside them, so that `facetric --help` answers at once."""

from __future__ import annotations

from typing import Annotated

import typer

import facetric
from facetric.cli.data import app as data_app
from facetric.cli.evaluate import compare, evaluate
from facetric.cli.report import report
from facetric.cli.train import resume, train

app = typer.Typer(no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False)
app.add_typer(data_app, name="data")
app.command(epilog="Example: facetric train configs/glyphs.toml --set run.name=first --set loss.margin_weight=4")(train)
app.command(epilog="Example: facetric resume runs/first")(resume)
app.command(epilog="Example: facetric report runs/glyphs")(report)
app.command(epilog="Example: facetric evaluate runs/first")(evaluate)
app.command(epilog="Example: facetric compare runs/first runs/second --format markdown")(compare)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"facetric {facetric.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Deep metric learning by facility location: embeddings whose clusters are right."""


@app.command(epilog="Example: facetric demo --steps 200")
def demo(
    steps: Annotated[int, typer.Option(min=1, help="Optimisation steps.")] = 150,
    seed: Annotated[int, typer.Option(help="Seed of the points.")] = 0,
) -> None:
    """Show the loss at work: a batch of points in the plane, clustered before and after optimisation."""
    from facetric.cli.demo import run_demo

    run_demo(n_steps=steps, seed=seed)
