"""`facetric cluster`: unsorted photos to groups on a page, in a table and in folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from facetric.cli.embed import MODEL, PHOTOS, print_problems
from facetric.cli.errors import one_line_errors
from facetric.cli.waiting import said_if_slow, steps_shown

if TYPE_CHECKING:
    from facetric.photos import PhotoGroups

_FOLDERS = "Nothing is moved, deleted or overwritten."


def cluster(
    photos: Annotated[Path, PHOTOS],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="The folder for clusters.csv and clusters.html.", show_default=False),
    ],
    model: Annotated[Path | None, MODEL] = None,
    clusters: Annotated[
        int | None, typer.Option(min=1, help="Exactly this many groups, when you know it.", show_default=False)
    ] = None,
    finer: Annotated[int, typer.Option("--finer", count=True, help="Smaller, purer groups; give it again for more.")] = 0,
    coarser: Annotated[int, typer.Option("--coarser", count=True, help="Larger groups; give it again for more.")] = 0,
    decisions: Annotated[
        list[Path] | None,
        typer.Option(
            help="Corrections that the page saved, or clusters.csv with names that you wrote into it; several are kept to.",
            show_default=False,
        ),
    ] = None,
    copy_to: Annotated[
        Path | None, typer.Option(help=f"Copy every group to a folder below this one. {_FOLDERS}", show_default=False)
    ] = None,
    link_to: Annotated[Path | None, typer.Option(help=f"The same with symbolic links. {_FOLDERS}", show_default=False)] = None,
    processes: Annotated[int, typer.Option(min=1, help="Processes that embed, each with a network in memory.")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Group the photos of a folder, unsorted and unlabeled, with a page to look at the groups and correct them.

    How similar the photos of a group are follows from the calibration of the run, or of the network that comes with the install.
    If it is killed, run it again to resume; run it again later, and only new photos are embedded.
    """
    wanted: tuple[tuple[Path | None, Literal["copy", "link"]], ...] = ((copy_to, "copy"), (link_to, "link"))
    folders = [(target, how) for target, how in wanted if target is not None]
    with one_line_errors("cluster", when_interrupted="stopped; run it again to continue"):
        with said_if_slow("loading the model"):
            from facetric.embedder import load
            from facetric.photos import Decisions, cluster_folder
            from facetric.photos.photo_groups import check_target

            for target, how in folders:
                check_target(photos, target, how)
            kept = Decisions.read_all(decisions or [], photos)
            loaded = load(model, device=device)
        with steps_shown() as on_step:
            clusterer, calibration, made_by = loaded.clusterer(clusters, coarser - finer)
            found = cluster_folder(
                photos,
                loaded,
                clusterer,
                output,
                calibration=calibration,
                made_by=made_by,
                decisions=kept,
                n_processes=processes,
                on_step=on_step,
            )
            for target, how in folders:
                found.arrange(target, how, on_progress=lambda n, total: on_step("Folders", n, total))
    _print(found, output, [target for target, _ in folders])


def _print(found: PhotoGroups, output: Path, folders: list[Path]) -> None:
    from facetric.text import printable

    rejected = int((found.clusters < 0).sum())
    counts = f"{len(found.photos):,} photos: {found.n_groups:,} groups, {found.n_alone:,} alone"
    typer.echo(counts + (f", {rejected:,} rejected" if rejected else "") + f" ({found.n_new:,} embedded now)")
    if found.promise is not None:
        typer.echo(
            f"expected: of two photos in one group {found.promise.precision} belong together; "
            f"of two that belong together about {found.promise.recall:.0%} are in one group"
        )
    typer.echo(printable(found.made_by))
    typer.echo(printable(f"look at them: {output / 'clusters.html'}; table: {output / 'clusters.csv'}"))
    for folder in folders:
        typer.echo(printable(f"folders: {folder}"))
    print_problems(found.problems)
