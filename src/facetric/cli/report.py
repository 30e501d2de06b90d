"""`facetric report`: report.html of a run, and its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from facetric.cli.errors import one_line_errors, say
from facetric.cli.waiting import steps_shown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from facetric.progress import OnStep
    from facetric.report.image_thumbnails import Picture, Thumbnails


def report(
    run: Annotated[Path, typer.Argument(help="A run folder such as runs/glyphs.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(help="Where to write the page; report.html in the run folder when left out.", show_default=False),
    ] = None,
    images: Annotated[bool, typer.Option("--images/--no-images", help="Include thumbnails of the images.")] = True,
    pictures: Annotated[bool, typer.Option("--pictures/--no-pictures", help="Also draw figures/*.png.")] = True,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the map.")] = 0,
) -> None:
    """Write report.html: scores, map, clusters, failed queries, curves and configuration of a run, in one file.

    The page works from disk, without a network. Evaluate the run first: without scores and embeddings those sections are missing.

    Figures (t-SNE map with the images in place, retrieval, clusters, curves) go to figures/ in the run folder.
    """
    with one_line_errors("report"):
        from facetric.runs import Run
        from facetric.text import printable

        if output is not None and output.is_dir():
            raise ValueError(f"--output is the page to write, and {output} is a folder: pass {Run(output).report_file}")
        try:
            with steps_shown() as on_step:
                made = make_report(run, output=output, with_images=images, seed=seed, on_step=on_step)
        except OSError as error:
            if error.filename is None:
                raise
            raise OSError(
                f"cannot write {error.filename}: {error.strerror}; free some space, change the permissions or choose --output"
            ) from None
        drawn, notes = [], list(made.notes)
        if pictures:
            try:
                drawn = draw_pictures(run, made, seed=seed)
            except OSError as error:  # the page is written: a read-only run cannot take pictures
                notes.append(
                    f"the figures were not drawn, figures/ cannot be written ({error.strerror or error}): pass --no-pictures"
                )
    for note in notes:
        say("report", note)
    for picture in drawn:
        typer.echo(printable(picture))
    typer.echo(f"{printable(made.path)} ({made.path.stat().st_size / 1e6:.1f} MB): open it in a browser")


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
    """Write the page, with images and class names from the dataset of the run."""
    import facetric
    from facetric.report import report_run
    from facetric.report.run_record import read_run
    from facetric.report.sprites import SIDES
    from facetric.runs import open_run

    known = read_run(folder)  # refuses what is not a run before anything long is done
    notes: list[str] = []
    names: tuple[str, ...] | None = None
    thumbnails, largest_side = None, None
    if known.images is not None:
        try:
            names = open_run(folder).manifest.class_names
        except (ValueError, OSError) as error:
            notes.append(f"Classes are named by number: {' '.join(str(error).split())}")
        if with_images:
            thumbnails, largest_side = _pictures(folder, notes)
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

    from facetric.report.image_thumbnails import Thumbnails
    from facetric.report.run_pictures import draw_run
    from facetric.report.run_record import read_run

    images = read_run(folder, class_names=made.class_names).images
    if images is None or made.thumbnails is None:
        nothing = np.empty((0, 1), dtype=np.float32), np.empty(0, dtype=np.int64)
        return draw_run(folder, *nothing, (), Thumbnails([]))
    labels = images.class_labels.astype(np.int64)
    return draw_run(folder, images.vectors, labels, images.class_names, made.thumbnails, metric=images.metric, seed=seed)


def _pictures(folder: Path, notes: list[str]) -> tuple[Thumbnails | None, int | None]:
    """Thumbnails in the order of the embeddings, and the side of the pictures where it is known."""
    import numpy as np

    from facetric.embedder.embeddings import Embeddings
    from facetric.images import open_image
    from facetric.report.image_thumbnails import Thumbnails
    from facetric.runs import Run

    names: Sequence[str] = Embeddings.load(Run(folder).embeddings_file()).images.tolist()
    if all(name.startswith("#") for name in names):  # drawn, not read: numbers in the order of the test images
        held = _drawn_images(folder, notes)
        if held is None or max(int(name[1:]) for name in names) >= len(held):
            notes.append("The images were in memory, and the dataset cannot be loaded: there are no thumbnails.")
            return None, None
        rows: NDArray[np.intp] = np.array([int(name[1:]) for name in names], dtype=np.intp)
        return Thumbnails(held[rows]), min(held.shape[1:3])

    def picture(image_id: int) -> Picture:
        return open_image(names[image_id])

    return Thumbnails(picture), None


def _drawn_images(folder: Path, notes: list[str]) -> NDArray[np.uint8] | None:
    import numpy as np

    from facetric.runs import open_run, run_images

    try:
        images = run_images(open_run(folder), "test")[0].images
    except (ValueError, OSError) as error:
        notes.append(f"The dataset cannot be read ({' '.join(str(error).split())}).")
        return None
    return images if isinstance(images, np.ndarray) else None
