"""`facetric embed`, `export`, `cluster` and `duplicates`: photos to vectors, a model to a file, photos to groups, to copies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from facetric.cli.errors import one_line_errors, said_if_slow, say
from facetric.cli.options import (
    Checkpoint,
    Clusters,
    Coarser,
    Device,
    Finer,
    Labels,
    Model,
    Names,
    Photos,
    SomePhotos,
    VectorFile,
)
from facetric.progress import steps_shown
from facetric.text import counted, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from facetric.embedder import Embedder, Vectors
    from facetric.images import Problem

RESUME = "stopped; run it again to continue"
_FOLDERS = "Nothing is moved, deleted or overwritten."
_SHOWN = 10  # broken photos, and groups of each kind, on the screen; all of them are in a file
_MEMBERS = 6
_TITLES = {"exact": "Exact copies", "near": "Near copies (resized, recompressed, slightly cropped)", "look-alike": "Look-alikes"}


def embed(
    photos: Photos,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write: .parquet, .npz or .csv.")],
    model: Model = None,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file that facetric did not write, or of another model.")
    ] = False,
) -> None:
    """Embed every photo in a folder: path, hash of the content, fingerprint of the model and vector, one row each.

    If it is killed, run it again to resume. Run it again later, and only photos of new content are embedded.
    Photos that cannot be opened are left out and listed in NAME.problems.csv beside the output.
    """
    with one_line_errors("embed", when_interrupted=RESUME):
        with said_if_slow("loading the model"):
            from facetric.embedder import load
            from facetric.photos import embed_folder

            loaded = load(model, checkpoint=checkpoint, device=device)
        with steps_shown() as progress:
            found = embed_folder(photos, loaded, output, overwrite=overwrite, progress=progress)
    known = found.n_photos - found.n_new
    counts = f"{found.n_new:,} embedded now" + (f", {known:,} known by content" if known else "")
    typer.echo(f"{printable(output)}: {counted(found.n_photos, 'photo')}, {loaded.dim} dimensions ({counts})")
    if found.problems:
        print_problems(found.problems)
        listed = output.with_name(f"{output.stem}.problems.csv")
        typer.echo(f"{len(found.problems):,} broken and left out, listed in {printable(listed)}")


def export(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="[RUN] OUTPUT",
            help="A run folder or a network, and what to write. Without one, the network that comes with the install.",
        ),
    ],
    format: Annotated[
        str, typer.Option(help="onnx: OUTPUT is a file, model.onnx; hub: a folder to share, or hf://OWNER/NAME.")
    ] = "onnx",
    check: Annotated[
        Path | None, typer.Option(help="Photos to compare with torch on; some that come with the install when left out.")
    ] = None,
    checkpoint: Checkpoint = "best",
    public: Annotated[bool, typer.Option("--public", help="On the hub, everyone may read it.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier export wrote.")] = False,
) -> None:
    """Write a model for others: an ONNX file, or a folder or repository of the Hugging Face hub.

    An ONNX file takes images of the run's size and gives vectors, any number at a time; it is run by onnxruntime and compared
    with torch before it is put in place, and where they differ nothing is written. A folder to share holds the network as
    safetensors, a description, and a card with the scores of `facetric evaluate`; it names no photo and no class. `--model` and
    `facetric.load` take either.
    """
    with one_line_errors("export"):
        *runs, output = paths
        if len(runs) > 1:
            raise ValueError(f"pass a run folder and one output; got {len(paths)} paths: facetric export RUN model.onnx")
        if format not in ("onnx", "hub"):
            raise ValueError(f"format must be onnx or hub; got {format!r}: choose one of these (--format)")
        with said_if_slow("exporting"):
            from facetric.embedder import load

            model = load(runs[0] if runs else None, checkpoint=checkpoint, device="cpu")
            is_run = model.file is not None and model.file.parent.parent.absolute() == Path(str(model.run))
            run = model.run if is_run else None
            if format == "onnx":
                lines = _exported(model, output, check, overwrite)
            else:
                lines = _shared(model, run, output, public, overwrite)
        if run is not None and not model.fitted_to:
            evaluate = f"run `facetric evaluate {printable(runs[0])}` first"
            say("export", f"its classes have not taught yet which photos belong together: {evaluate} to include that")
    for line in lines:
        typer.echo(line)


def _exported(model: Embedder, output: str, check: Path | None, overwrite: bool) -> list[str]:
    found = model.export(output, check=check, overwrite=overwrite)
    n_bytes = Path(output).expanduser().stat().st_size
    return [
        f"{printable(output)}: {found.network}, {found.dim} dimensions, {n_bytes / 1e6:.1f} MB",
        f"input: {found.words()}",
        f"{found.n_checked} images differ from torch by at most {found.difference:.1e}",
    ]


def _shared(model: Embedder, run: str | None, output: str, public: bool, overwrite: bool) -> list[str]:
    from facetric.embedder import HUB
    from facetric.runs import model_card, open_run

    report = "" if run is None else model_card(open_run(run), model.fingerprint)
    if output.startswith(HUB):
        output = model.push_to_hub(output.removeprefix(HUB), private=not public, report=report)
    else:
        model.save(output, report=report, overwrite=overwrite)
    return [f"{printable(output)}: {model.network.name}, {model.dim} dimensions, {model.fingerprint[:12]}"]


def cluster(
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder for clusters.csv and clusters.html.")],
    photos: SomePhotos = None,
    vectors: VectorFile = None,
    names: Names = None,
    labels: Labels = None,
    model: Model = None,
    clusters: Clusters = None,
    finer: Finer = 0,
    coarser: Coarser = 0,
    decisions: Annotated[
        list[Path] | None,
        typer.Option(
            help="Corrections that the page saved, or clusters.csv with names that you wrote into it; several are kept to. The "
            "output keeps them. The output folder of other photos: the names that you gave there teach what belongs together."
        ),
    ] = None,
    table: Annotated[
        Path | None, typer.Option(help="A CSV file with a column path, for the next two options.", metavar="FILE.csv")
    ] = None,
    same_within: Annotated[
        str | None, typer.Option(help="Photos with one value in this column show the same: a burst, say.", metavar="COLUMN")
    ] = None,
    different_within: Annotated[
        str | None,
        typer.Option(help="Photos with one value here all differ: animals cut out of one picture, say.", metavar="COLUMN"),
    ] = None,
    copy_to: Annotated[Path | None, typer.Option(help=f"Copy every group to a folder below this one. {_FOLDERS}")] = None,
    link_to: Annotated[Path | None, typer.Option(help=f"The same with symbolic links. {_FOLDERS}")] = None,
    device: Device = "auto",
) -> None:
    """Group the photos of a folder, unsorted and unlabeled, with a page to look at the groups and correct them.

    Which photos belong together was learned from the classes of the run or, without one, from other kinds of photos.
    If it is killed, run it again to resume; run it again later, and only new photos are embedded.

    --vectors groups vectors that were made elsewhere; without photos, the page shows their names.
    """
    with one_line_errors("cluster", when_interrupted=RESUME):
        with said_if_slow("loading the model" if vectors is None else "reading the vectors"):
            from facetric.embedder import load
            from facetric.photos import Decisions, cluster_folder, read_links

            given = opened_vectors(vectors, names, labels)
            if photos is None and (vectors is None or table is not None):
                raise ValueError(f"pass a folder of photos{' with --table' if vectors else ', or --vectors FILE'}")
            earlier = [place for place in decisions or () if place.expanduser().is_dir()]
            kept, links = Decisions.read_all([file for file in decisions or () if file not in earlier], photos), None
            if table is not None and photos is not None:
                links = read_links(table, photos, same_within=same_within, different_within=different_within)
            elif same_within or different_within:
                raise ValueError("--same-within and --different-within name columns of a table: pass --table FILE.csv")
            loaded = load(model, device=device) if given is None or model is not None else None
        with steps_shown() as progress:
            found = cluster_folder(
                photos,
                loaded,
                output,
                vectors=given,
                n_clusters=clusters,
                finer=finer,
                coarser=coarser,
                decisions=kept,
                links=links,
                earlier=earlier,
                copy_to=copy_to,
                link_to=link_to,
                progress=progress,
            )
    counts, *others = found.summary
    places = f"look at them: {output / 'clusters.html'}; table: {output / 'clusters.csv'}"
    folders = [f"folders: {folder}" for folder in (copy_to, link_to) if folder is not None]
    how = "embedded" if given is None else "read"
    for line in (f"{counts} ({found.n_new:,} {how} now)", *others, places, *folders):
        typer.echo(printable(line))
    print_problems(found.problems)


def duplicates(
    photos: Photos,
    model: Model = None,
    look_alikes: Annotated[
        bool, typer.Option(help="Also embed the photos and compare their vectors; takes longer than the rest.")
    ] = True,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write all groups to this .csv file; or an index, where nothing is embedded again."),
    ] = None,
    device: Device = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that facetric did not write.")] = False,
) -> None:
    """Find copies among the photos of a folder: exact, near (resized, recompressed, cropped by up to 5%), and look-alikes.

    Each group names the photo to keep: most pixels, then most bytes, then the shortest name. Nothing is deleted.
    """
    with one_line_errors("duplicates"), steps_shown() as progress:
        from facetric.photos import find_duplicates

        collection = None if output is None or output.suffix.lower() == ".csv" or output.is_file() else output
        table = output if collection is None else collection / "duplicates.csv"
        if model is not None and not look_alikes:
            raise ValueError("--model is what look-alikes are compared by: pass --model or --no-look-alikes, not both")
        embedder = opened_model(None if collection is None else str(collection), model, device) if look_alikes else None
        found = find_duplicates(photos, embedder, collection=collection, table=table, overwrite=overwrite, progress=progress)
    for kind, title in _TITLES.items():
        if groups := found.of_kind(kind):
            typer.echo(f"{title}: {counted(len(groups), 'group')}")
            for group in groups[:_SHOWN]:
                for photo, suggestion in list(zip(group.photos, group.suggestions, strict=True))[:_MEMBERS]:
                    size = f"{photo.look.width} × {photo.look.height}, {photo.look.n_bytes / 1000:,.0f} kB"
                    typer.echo(f"  {'┌' if suggestion == 'keep' else '│'} {suggestion:9}  {printable(photo.path)}  ({size})")
                if len(group.photos) > _MEMBERS:
                    typer.echo(f"  │ … and {len(group.photos) - _MEMBERS:,} more")
            if len(groups) > _SHOWN:
                typer.echo(f"  … and {len(groups) - _SHOWN:,} more{'' if table else '; --output FILE.csv lists all'}")
    similarity = "" if found.similarity is None else f"; look-alikes have a cosine similarity of {found.similarity:.3f} or more"
    typer.echo(
        f"{counted(found.n_photos, 'photo')}, {found.n_copies:,} of them copies of others{similarity}. Nothing was deleted."
    )
    if table is not None:
        typer.echo(f"Written: {printable(table)}")
    print_problems(found.problems)


def opened_model(index: str | None, model: str | None, device: str) -> Embedder:
    """The model that is asked for, or else that of the index, or for a new one the packaged network."""
    with said_if_slow("loading the model"):
        from facetric.embedder import HUB, Elsewhere, is_network_name, load
        from facetric.photos import open_collection

        recorded = None if index is None else open_collection(index).model
        if model is None and recorded is not None and recorded.is_elsewhere:
            packaged = load(device=device) if recorded.has_name else None  # it may have made them
            if packaged is None or packaged.fingerprint != recorded.fingerprint:
                return Elsewhere(recorded.fingerprint, recorded.dim, recorded.words)
            return packaged
        run = model if model is not None or recorded is None else recorded.run
        is_path = run is not None and not run.startswith(HUB) and not is_network_name(run)
        if model is None and is_path and not Path(str(run)).exists():
            raise ValueError(
                f"the model {printable(run)} of {printable(index)} is not there any more: pass its new place (--model)"
            )
        return load(run, device=device)


def opened_vectors(file: Path | None, names: str | None, labels: str | None) -> Vectors | None:
    """What --vectors, --names and --labels say."""
    if file is None:
        if names or labels:
            raise ValueError("--names and --labels name columns of a file of vectors: pass --vectors FILE")
        return None
    from facetric.embedder import read_vectors

    return read_vectors(file, names=names, labels=labels)


def print_problems(problems: Sequence[Problem]) -> None:
    """The first of them, on stderr."""
    for problem in problems[:_SHOWN]:
        typer.echo(f"left out: {printable(problem.reason)}", err=True)
    if len(problems) > _SHOWN:
        typer.echo(f"left out: … and {len(problems) - _SHOWN:,} more", err=True)
