"""`facetric report`: the page of a run, report.html, and its still pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from facetric.data import ImageDataset
    from facetric.figures.thumbnails import Picture, Thumbnails
    from facetric.progress import OnStep


def report(
    run: Annotated[Path, typer.Argument(help="A run folder such as runs/glyphs.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(help="Where to write the page; report.html in the run folder when left out.", show_default=False),
    ] = None,
    images: Annotated[bool, typer.Option("--images/--no-images", help="Put thumbnails of the images into the page.")] = True,
    pictures: Annotated[bool, typer.Option("--pictures/--no-pictures", help="Draw figures/*.png of the run, too.")] = True,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the map.")] = 0,
) -> None:
    """Write report.html: scores, map, clusters, failed queries, curves and configuration of a run, in one file.

    The page works from disk, without a network. It shows what the run has: evaluate the run first for scores and a map.

    Still pictures (t-SNE map with the images in place, retrieval, clusters, curves) go to figures/ in the run folder.

    Exit status: 0 written, 1 it could not be written, 2 there is no such run.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    messages = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        if output is not None and output.is_dir():
            raise ValueError(f"--output is the page to write, and {output} is a folder: pass {output / 'report.html'}")
        with Progress(*columns, console=messages, transient=True, disable=not messages.is_terminal) as progress:
            task = progress.add_task("Reading the run", total=None)

            def on_step(name: str, done: int, total: int) -> None:
                progress.update(task, description=name, completed=done, total=total)

            made = make_report(run, output=output, with_images=images, seed=seed, on_step=on_step)
        drawn = draw_pictures(run, made, seed=seed) if pictures else []
    except (ValueError, OSError) as error:
        words = str(error)
        if isinstance(error, OSError) and error.filename is not None:
            words = (
                f"cannot write {output or run}: {error.strerror}; make room or change the permissions, or choose another --output"
            )
        typer.echo(f"facetric report: {' '.join(words.split())}", err=True)
        raise typer.Exit(2 if isinstance(error, ValueError) else 1) from None
    for note in made.notes:
        typer.echo(f"facetric report: {note}", err=True)
    for picture in drawn:
        typer.echo(str(picture))
    typer.echo(f"{made.path} ({made.path.stat().st_size / 1e6:.1f} MB): open it in a browser")


@dataclass(frozen=True, eq=False)
class MadeReport:
    """The page, and what it was made from."""

    path: Path
    class_names: tuple[str, ...] | None
    thumbnails: Thumbnails | None
    notes: tuple[str, ...]


def make_report(
    folder: Path, *, output: Path | None = None, with_images: bool = True, seed: int = 0, on_step: OnStep | None = None
) -> MadeReport:
    """Join the run with its dataset, which has the pictures and the names of the classes, and write the page."""
    import facetric
    from facetric.figures.report import report_run
    from facetric.figures.report.data import read_run
    from facetric.figures.report.sprite_sheets import SIDES

    known = read_run(folder)  # refuses what is no run before anything long is done
    notes: list[str] = []
    names: tuple[str, ...] | None = None
    thumbnails, largest_side = None, None
    if known.images is not None:
        dataset = _test_images(folder, notes)
        names = dataset.class_names if dataset is not None else None
        if with_images:
            thumbnails, largest_side = _pictures(folder, dataset, notes)
    path = report_run(
        folder,
        class_names=names,
        thumbnails=thumbnails,
        largest_side=largest_side or SIDES[0],
        path=output,
        footer=f"Made by facetric {facetric.__version__} with `facetric report`. This page needs no network.",
        notes=notes,
        seed=seed,
        on_step=on_step,
    )
    return MadeReport(path, names, thumbnails, (*known.notes, *notes))


def draw_pictures(folder: Path, made: MadeReport, *, seed: int = 0) -> list[Path]:
    """Draw figures/*.png; without pictures of the images only the curves."""
    import numpy as np

    from facetric.figures.report.data import read_run
    from facetric.figures.run_pictures import draw_run
    from facetric.figures.thumbnails import Thumbnails

    images = read_run(folder, class_names=made.class_names).images
    if images is None or made.thumbnails is None:
        nothing = np.empty((0, 1), dtype=np.float32), np.empty(0, dtype=np.int64)
        return draw_run(folder, *nothing, (), Thumbnails([]))
    labels = images.class_labels.astype(np.int64)
    return draw_run(folder, images.vectors, labels, images.class_names, made.thumbnails, metric=images.metric, seed=seed)


def _test_images(folder: Path, notes: list[str]) -> ImageDataset | None:
    """The images that embeddings.npz is of, from the dataset that config.toml names; None, and a note, when it is not there."""
    from facetric.data import load_dataset
    from facetric.evaluation.run_config import read_run_config

    try:
        data = read_run_config(folder)["data"]
        return load_dataset(data["name"], data.get("root"), **data.get("options", {})).select("test")
    except (ValueError, OSError) as error:
        notes.append(f"The dataset cannot be read, so classes have numbers for names ({' '.join(str(error).split())}).")
        return None


def _pictures(folder: Path, dataset: ImageDataset | None, notes: list[str]) -> tuple[Thumbnails | None, int | None]:
    """Thumbnails in the order of embeddings.npz, and the side of the pictures where it is known."""
    import numpy as np

    from facetric.data import open_image
    from facetric.evaluation.embeddings import Embeddings
    from facetric.figures.thumbnails import Thumbnails

    names: Sequence[str] = Embeddings.load(folder / "embeddings.npz").images.tolist()
    held = dataset.images if dataset is not None and isinstance(dataset.images, np.ndarray) else None
    in_memory = all(name.startswith("#") for name in names)
    if in_memory and (held is None or max(int(name[1:]) for name in names) >= len(held)):
        notes.append("The images were in memory, and the dataset is not there to draw them from: there are no pictures.")
        return None, None
    if in_memory:
        assert held is not None
        rows: NDArray[np.intp] = np.array([int(name[1:]) for name in names], dtype=np.intp)
        return Thumbnails(held[rows]), min(held.shape[1:3])

    def picture(image_id: int) -> Picture:
        return open_image(names[image_id])

    return Thumbnails(picture), None
