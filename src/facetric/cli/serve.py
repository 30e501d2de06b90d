"""`facetric serve`: an index over HTTP, with a page."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from facetric.cli.errors import one_line_errors
from facetric.cli.options import Clusters, Coarser, Device, Finer, Index, MovedModel
from facetric.cli.photos import opened_model


def serve(
    index: Index,
    host: Annotated[str, typer.Option(help="The address to listen at; other than loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="FACETRIC_TOKEN", help="What every request has to send; set it in the environment, other users see options."
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A name that requests may ask for, as behind a proxy; again for more.")
    ] = None,
    clusters: Clusters = None,
    finer: Finer = 0,
    coarser: Coarser = 0,
    max_megabytes: Annotated[float | None, typer.Option(help="Of a request.")] = None,
    max_megapixels: Annotated[float | None, typer.Option(help="Of an image.")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="For a request.")] = None,
    max_requests: Annotated[int | None, typer.Option(help="Under way at a time.")] = None,
    model: MovedModel = None,
    device: Device = "auto",
) -> None:
    """Serve an index: a page to search it with an image and to correct its groups, and the same for programs.

    Only this machine can reach it unless --host says otherwise. SIGTERM and Ctrl-C finish what is under way.
    """
    with one_line_errors("serve"):
        from facetric.photos import open_collection
        from facetric.service import Limits, check_access
        from facetric.service import serve as served
        from facetric.text import printable

        given = {"megabytes": max_megabytes, "megapixels": max_megapixels, "seconds": max_seconds, "requests": max_requests}
        limits = replace(Limits(), **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
        check_access(host, token)
        open_collection(index).check()
        served(
            opened_model(index, model, device),
            index,
            host=host,
            port=port,
            token=token,
            allow_hosts=allow_host or (),
            n_clusters=clusters,
            finer=finer,
            coarser=coarser,
            limits=limits,
            on_ready=partial(print, f"{printable(index)} (stop with Ctrl-C):", flush=True),
        )
