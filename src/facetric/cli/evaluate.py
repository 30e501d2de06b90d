"""`facetric evaluate` and `facetric compare`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from facetric.cli.waiting import steps_shown


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder, with config.toml and checkpoints/.", show_default=False)],
    split: Annotated[str, typer.Option(help="test, validation or train.")] = "test",
    checkpoint: Annotated[str, typer.Option(help="best (last when there is no best), or last.")] = "best",
    views: Annotated[int, typer.Option(help="1: center crop; 2, 5 or 10: the average over crops and flips.")] = 1,
    k: Annotated[
        list[int] | None,
        typer.Option("--k", "-k", help="K of Recall@K, repeatable; 1 2 4 8, or 1 10 100 1000 for products.", show_default=False),
    ] = None,
    restarts: Annotated[int, typer.Option(min=1, help="k-means clusterings.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first clustering.")] = 0,
    facility: Annotated[bool, typer.Option(help="Facility-location clustering too, where feasible.")] = True,
    memory: Annotated[float, typer.Option(help="GiB to work in, beside the embeddings.")] = 1.0,
    batch_size: Annotated[int, typer.Option(min=1, help="Images in a batch of the model.")] = 64,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Embed a split of a run's dataset once, score retrieval and clustering, and print the paper's table.

    Writes embeddings.npz and evaluation.json into the run folder (with -SPLIT in their names unless the split is test).

    Killed, it goes on where it was when started again. Under torchrun the images are shared by all processes.

    Exit status: 0 evaluated, 1 it cannot be.
    """
    from facetric.runs import evaluate_run

    with one_line_errors("evaluate"), steps_shown() as on_progress:
        found = evaluate_run(
            run,
            split=split,
            checkpoint=checkpoint,
            views=views,
            ks=k,
            n_restarts=restarts,
            seed=seed,
            facility=facility,
            memory_gib=memory,
            batch_size=batch_size,
            device=device,
            on_progress=on_progress,
        )
    if found.report is not None:
        typer.echo(str(found.report))
        typer.echo(f"Written: {found.report_path}, {found.embeddings_path}")


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders that have been evaluated.", show_default=False)],
    split: Annotated[str, typer.Option(help="test, validation or train.")] = "test",
    format: Annotated[str, typer.Option("--format", "-f", help="text, markdown or latex.")] = "text",
    paper: Annotated[bool, typer.Option(help="The paper's rows beside the runs, for cub, cars and products.")] = True,
    picture: Annotated[Path | None, typer.Option(help="Draw the table into this PNG too.", show_default=False)] = None,
) -> None:
    """Print evaluated runs as one table, the best of each column in bold.

    Runs whose configurations differ in nothing but seed and name are one row: mean ± standard deviation.
    """
    from facetric.data.dataset import SPLITS
    from facetric.evaluation.tables import comparison_text
    from facetric.runs import compare_runs

    with one_line_errors("compare"):
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}; got {split!r}: choose one of these")
        comparison = compare_runs(runs, split=split, published=paper)
        text = comparison_text(comparison, format)  # type: ignore[arg-type]
        if picture is not None:
            from facetric.figures import save_comparison

            save_comparison(comparison, picture)
    if format == "text" and _is_terminal():
        text = _bold(text)
    typer.echo(text)


@contextmanager
def one_line_errors(command: str) -> Iterator[None]:
    """What is wrong with the question or the files as one line on stderr, and exit status 1."""
    try:
        yield
    except (ValueError, OSError) as error:
        typer.echo(f"facetric {command}: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(1) from None


def _is_terminal() -> bool:
    from rich.console import Console

    return Console().is_terminal


def _bold(text: str) -> str:
    """On a terminal the star of the best becomes bold."""
    import re

    return re.sub(r"(\d+\.\d\d(?: ± \d+\.\d\d)?)\*", lambda found: f"\033[1m{found[1]}\033[0m ", text)
