"""`facetric evaluate`, `facetric compare` and `facetric report`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from facetric.cli.errors import one_line_errors, say
from facetric.cli.options import Checkpoint, Device, Json, Labels, MaybeRun, Names, Split, VectorFile
from facetric.cli.photos import opened_vectors
from facetric.progress import steps_shown


def evaluate(
    run: MaybeRun = None,
    vectors: VectorFile = None,
    labels: Labels = None,
    split: Split = "test",
    checkpoint: Checkpoint = "best",
    k: Annotated[
        list[int] | None, typer.Option("--k", "-k", help="K of Recall@K, repeatable; 1 2 4 8, or 1 10 100 1000 for products.")
    ] = None,
    restarts: Annotated[int, typer.Option(min=0, help="Random starts of k-means; NMI is their mean, as in the literature.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first random start.")] = 0,
    facility: Annotated[bool, typer.Option(help="Also cluster from medoids, not at random: the column medoid NMI.")] = True,
    baselines: Annotated[bool, typer.Option(help="Also score what there was before training.")] = True,
    memory: Annotated[float, typer.Option(help="Working memory of retrieval in GiB, besides the embeddings.")] = 1.0,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Images per forward pass; by default as suits the device.")
    ] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Embed a split of a run's data, score retrieval and clustering, and print the paper's table.

    The split is the one that training used; images that were added, removed or changed since are named.
    Writes embeddings.npz and evaluation.json into the run folder (with -SPLIT in their names unless the split is test).

    --vectors scores vectors that were made elsewhere against a column of labels, beside the same vectors in random order.
    """
    with one_line_errors("evaluate", when_interrupted="stopped; run it again to continue"), steps_shown() as progress:
        _check_one(run, vectors)
        given = opened_vectors(vectors, None, labels)
        scores: dict[str, Any] = {
            "n_restarts": restarts,
            "seed": seed,
            "facility": facility,
            "memory_gib": memory,
            "progress": progress,
        }
        if given is not None:
            from facetric.evaluation import evaluate_vectors

            of_run = {"split": split != "test", "checkpoint": checkpoint != "best", "batch_size": batch_size is not None}
            if (others := [name for name, passed in of_run.items() if passed]) or device != "auto":
                raise ValueError(f"vectors have no {', '.join(others) or 'device'}: leave it out")
            source = given.source
            report = evaluate_vectors(given.vectors, given.labels, ks=k, baselines=baselines, source=source, **scores)
            typer.echo(report.to_json() if json else str(report), nl=not json)
            return
        from facetric.runs import open_run

        assert run is not None
        report = open_run(run).evaluate(
            split=split, checkpoint=checkpoint, ks=k, baselines=baselines, batch_size=batch_size, device=device, **scores
        )
    if json:
        typer.echo(report.to_json(), nl=False)
    else:
        typer.echo(str(report))


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders that have been evaluated.")],
    split: Split = "test",
    format: Annotated[str, typer.Option("--format", "-f", help="text, markdown, latex or csv.")] = "text",
    paper: Annotated[bool, typer.Option(help="Include the paper's rows, for cub, cars and products.")] = True,
    reference: Annotated[
        Path | None, typer.Option(help="One of the runs: also print its row minus every other, seed by seed.")
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Also plot the table to this PNG file.")] = None,
) -> None:
    """Print evaluated runs as one table, the best of each column in bold.

    Runs that differ only in seed and name form one row: mean ± standard deviation.

    Example: facetric compare runs/ours-seed* runs/triplet-seed* --reference runs/ours-seed0
    """
    with one_line_errors("compare"):
        from rich.console import Console

        from facetric.runs import compare_runs

        comparison = compare_runs(runs, split=split, published=paper, reference=reference)
        text = comparison.text(format)  # type: ignore[arg-type]
        if figure is not None:
            from facetric.report import save_comparison

            save_comparison(comparison, figure)
    if format == "text" and Console().is_terminal:  # bold instead of a star
        text = re.sub(r"(\d+\.\d\d(?: ± \d+\.\d\d)?)\*", lambda found: f"\033[1m{found[1]}\033[0m ", text)
    typer.echo(text)


def report(
    run: MaybeRun = None,
    vectors: VectorFile = None,
    names: Names = None,
    labels: Labels = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Where to write the page; report.html in the run folder, or NAME.html beside vectors, when left out."),
    ] = None,
    images: Annotated[bool, typer.Option("--images/--no-images", help="Include thumbnails of the images.")] = True,
    figures: Annotated[bool, typer.Option("--figures/--no-figures", help="Also draw figures/*.png.")] = True,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the map.")] = 0,
) -> None:
    """Write report.html: scores, map, clusters, failed queries, curves and configuration of a run, in one file.

    The page works from disk, without a network. Evaluate the run first: without scores and embeddings those sections are missing.

    Figures (t-SNE map with the images in place, curves) go to figures/ in the run folder.

    --vectors shows labeled vectors that were made elsewhere in the same way, with thumbnails where names are paths of images.
    """
    with one_line_errors("report"):
        from facetric.report import write_report, write_vectors_report
        from facetric.text import printable

        if output is not None and output.is_dir():
            raise ValueError(f"--output is the page to write, and {output} is a folder: pass the name of a file in it")
        try:
            _check_one(run, vectors)
            given = opened_vectors(vectors, names, labels)
            with steps_shown() as on_step:
                if given is not None and vectors is not None:
                    target = output or _page_beside(vectors)
                    made = write_vectors_report(
                        given.vectors, given.names, given.labels, target, images=images, seed=seed, progress=on_step
                    )
                else:
                    assert run is not None
                    made = write_report(run, output=output, images=images, figures=figures, seed=seed, progress=on_step)
        except OSError as error:
            if error.filename is None:
                raise
            raise OSError(
                f"cannot write {error.filename}: {error.strerror}; free some space, change the permissions or choose --output"
            ) from None
    for note in made.notes:
        say("report", note)
    for figure in made.figures:
        typer.echo(printable(figure))
    typer.echo(f"{printable(made.page)} ({made.page.stat().st_size / 1e6:.1f} MB): open it in a browser")


def _page_beside(vectors: Path) -> Path:
    """NAME.html, a name that nobody chose: a file of others there is not replaced."""
    from facetric.text import printable

    page = vectors.with_suffix(".html")
    if page.exists() and not (page.is_file() and b'name="facetric-made-from"' in page.read_bytes()):
        raise ValueError(f"{printable(page)} exists and was not written by `facetric report`: say where the page goes (--output)")
    return page


def _check_one(run: Path | None, vectors: Path | None) -> None:
    if (run is None) == (vectors is None):
        raise ValueError("pass a run folder, or --vectors FILE" + (", not both" if run else ""))
