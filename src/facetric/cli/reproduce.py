"""`facetric reproduce`: the paper's comparison of losses on one dataset, under one protocol."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from facetric.cli.errors import one_line_errors
from facetric.cli.options import Overrides


def reproduce(
    dataset: Annotated[str, typer.Argument(help="glyphs, cub, cars or products; folder or csv for your own images.")],
    root: Annotated[str | None, typer.Option(help="Path of the dataset. glyphs is built in and needs none.")] = None,
    setting: Annotated[
        str,
        typer.Option(
            help="head: a linear head on a frozen backbone (minutes). finetune: the last blocks too (hours on a CPU). "
            "paper: GoogLeNet end to end (needs a GPU). scratch: glyphs. "
            "auto: scratch for glyphs, paper with a GPU, else finetune."
        ),
    ] = "auto",
    methods: Annotated[
        list[str] | None,
        typer.Option("--method", help="A loss, as in 'my.Loss(margin=0.5)'; repeatable. Default: the paper's four."),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Folder of the study. Default: runs/reproduce-DATASET-SETTING.")] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Search trials per loss. Default: by setting.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Final runs per loss.")] = 5,
    steps: Annotated[int | None, typer.Option(min=10, help="Training steps of every run. Default: by setting.")] = None,
    trial_steps: Annotated[
        int | None, typer.Option(min=10, help="Training steps of a search trial. Default: those of every run.")
    ] = None,
    overrides: Overrides = None,
    options_from: Annotated[
        Path | None,
        typer.Option(
            help="For finetune: a finished head study. Its hyper-parameters are kept; only the learning rates are searched."
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at a time. Default: 1 with a GPU, else one per core.")] = None,
) -> None:
    """Compare the paper's four losses under one protocol, and print the table beside the published one.

    For every loss, hyper-parameters are searched on validation classes, with the same number of trials. The best ones train
    several seeds on all training classes, and every seed is scored once on the test classes.

    Start the same command again to resume an interrupted study: finished trials and runs are not repeated. More --trials or
    --seeds extend it; final runs that a longer search replaces are moved to superseded/.

    A loss whose batches the dataset cannot fill is left out with a message.

    Example, your own photos: facetric reproduce folder --root path/to/photos --setting head --trials 8 --seeds 3

    Example, a copy of Cars196 that lacks images: facetric reproduce cars --root path --set data.options.check_counts=false

    Exit status: 0 done, 1 failed while running, 2 usage error, 130 or 143 stopped by a signal.
    """
    import torch

    from facetric.machine import available_cores
    from facetric.report import save_comparison, write_report
    from facetric.text import printable
    from facetric.training.study import reproduction

    before = signal.signal(signal.SIGTERM, _interrupt)
    with one_line_errors("reproduce", when_interrupted="interrupted; start the same command again to resume"):
        try:
            study = reproduction(
                dataset,
                output,
                root=root,
                setting=setting,
                overrides=overrides or (),
                n_trials=trials,
                n_seeds=seeds,
                steps=steps,
                trial_steps=trial_steps,
                options_from=options_from,
                **({"methods": methods} if methods else {}),
            )
            comparison = study.run(n_processes=jobs or (1 if torch.cuda.is_available() else available_cores()))
            figure = save_comparison(comparison, study.folder / "table.png")
            page = write_report(study.final_folder(list(study.methods)[-1], 0), figures=False).page
        finally:
            signal.signal(signal.SIGTERM, before)
    typer.echo(str(comparison))
    typer.echo(printable(f"Written: {study.folder / 'table.md'}, {figure}, {study.folder / 'study.json'}, {page}"))


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt(number)
