"""Arguments and options that several commands have, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Index = Annotated[str, typer.Argument(help="The folder of the index, or milvus://host:19530/collection.")]
Photos = Annotated[Path, typer.Argument(help="A folder of photos, nested and unsorted, or one photo.")]
MaybeRun = Annotated[Path | None, typer.Argument(help="A run folder such as runs/photos; or pass --vectors.")]
RunFolder = Annotated[Path, typer.Argument(help="A run folder such as runs/photos.")]

Checkpoint = Annotated[str, typer.Option(help="best (last when there is no best), or last.")]
Clusters = Annotated[int | None, typer.Option(min=1, help="Exactly this many groups, when you know it.")]
Coarser = Annotated[int, typer.Option("--coarser", count=True, help="Larger groups; give it again for more.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Finer = Annotated[int, typer.Option("--finer", count=True, help="Smaller, purer groups; give it again for more.")]
Json = Annotated[bool, typer.Option("--json", help="Print everything known as JSON.")]
Model = Annotated[
    str | None,
    typer.Option(
        help="A network that `facetric models` lists, a run folder, what `facetric export` wrote, or hf://OWNER/NAME; without "
        "it, the network that comes with the install."
    ),
]
MovedModel = Annotated[str | None, typer.Option(help="Where the run of the index is now.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change a setting of the run; may be repeated.")
]
Labels = Annotated[str | None, typer.Option(help="With --vectors: the column of labels, unless it is called label.")]
Names = Annotated[str | None, typer.Option(help="With --vectors: the column of names, unless it is called name, path or text.")]
SomePhotos = Annotated[Path | None, typer.Argument(help="A folder of photos, nested and unsorted, or one photo.")]
Split = Annotated[str, typer.Option(help="test, validation or train.")]
VectorFile = Annotated[
    Path | None,
    typer.Option(
        "--vectors",
        metavar="FILE",
        help="Vectors that any program made: .npy, or .npz or .parquet with columns vectors, name, label.",
    ),
]
