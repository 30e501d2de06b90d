"""The commands. Heavy imports stay inside them, so that `facetric --help` answers at once."""

from __future__ import annotations

from typing import Annotated

import typer

import facetric
from facetric.cli.data import app as data_app
from facetric.cli.data import cache_app
from facetric.cli.demo import demo
from facetric.cli.evaluate import compare, evaluate, report
from facetric.cli.index import app as index_app
from facetric.cli.index import search
from facetric.cli.models import models
from facetric.cli.photos import cluster, duplicates, embed, export
from facetric.cli.reproduce import reproduce
from facetric.cli.serve import serve
from facetric.cli.train import resume, train
from facetric.machine import prepare_process

app = typer.Typer(
    no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False, epilog="To see it work: facetric demo"
)
app.command(epilog="Example: facetric demo")(demo)
app.command(
    epilog="Examples: facetric train --data folder --root path/to/photos; "
    "facetric train configs/glyphs.toml --set run.name=first --set loss.margin_weight=4"
)(train)
app.command(epilog="Example: facetric resume runs/first")(resume)
app.command(epilog="Example: facetric evaluate runs/first")(evaluate)
app.command(epilog="Example: facetric report runs/first")(report)
app.command(epilog="Example: facetric compare runs/first runs/second --format markdown")(compare)
app.command(epilog="Example: facetric embed new-photos --model runs/photos --output vectors.parquet")(embed)
app.command(epilog="Example: facetric export runs/photos model.onnx")(export)
app.command(
    epilog="Examples: facetric cluster new-photos --model runs/photos --output groups; "
    "facetric cluster new-photos --output groups --decisions decisions.json --copy-to sorted"
)(cluster)
app.command(epilog="Example: facetric duplicates new-photos --output duplicates.csv")(duplicates)
app.command(epilog="Example: facetric search birds.index photo.jpg --classify --page found.html")(search)
app.command(epilog="Example: facetric serve birds.index")(serve)
app.command(epilog="Example: facetric models lite0 dinov2-small --speed")(models)
app.command(epilog="Example: facetric reproduce cub --root datasets/CUB_200_2011 --setting head")(reproduce)
app.add_typer(index_app, name="index")
app.add_typer(data_app, name="data")
app.add_typer(cache_app, name="cache")


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
    """Deep metric learning by facility location: embeddings whose clusters are right.

    Exit codes of all commands: 0 done; 1 failed while running, or problems found; 2 usage error (options, configuration or
    data that cannot work); 130 or 143 stopped by a signal.
    """
    prepare_process()
