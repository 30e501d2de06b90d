"""`facetric reproduce`: the paper's comparison of losses on one dataset, under one protocol."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from facetric.cli.errors import one_line_errors


def reproduce(
    dataset: Annotated[
        str, typer.Argument(help="glyphs, cub, cars or products; or your own: folder or csv.", show_default=False)
    ],
    root: Annotated[str | None, typer.Option(help="Where the dataset lies; glyphs are built in.", show_default=False)] = None,
    setting: Annotated[
        str,
        typer.Option(
            help="head: train a linear head on frozen features; finetune: the last part of the backbone too; "
            "paper: GoogLeNet end to end, for a GPU; auto: paper with a GPU, else finetune."
        ),
    ] = "auto",
    methods: Annotated[
        list[str] | None,
        typer.Option("--method", help="A loss; may be repeated. The four of the paper when left out.", show_default=False),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Where the study is kept; runs/reproduce-DATASET-SETTING when left out.", show_default=False),
    ] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Trials of the search for each loss.", show_default=False)] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Final runs of each loss; 5 when left out.", show_default=False)
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=10, help="Steps of every run, instead of the setting's.", show_default=False)
    ] = None,
    options_from: Annotated[
        Path | None,
        typer.Option(
            help="A finished study of heads, whose choices fine-tuning keeps: only the backbone's rate is searched.",
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time; one per core without a GPU.", show_default=False)
    ] = None,
) -> None:
    """Compare the paper's four losses under one protocol, and print the table beside the published one.

    Hyper-parameters are searched on classes cut from the training half, with the same number of trials for each loss.

    Several seeds then train on the whole training half; the test classes are looked at once, at the end.

    Interrupted, it goes on where it was when started again. Finished trials and runs are not repeated.
    """
    from facetric.cli.report import make_report
    from facetric.evaluation.tables import comparison_text
    from facetric.figures import save_comparison
    from facetric.studies.protocol import say
    from facetric.studies.reproduction import auto_setting, reproduction
    from facetric.studies.spaces import PAPER_METHODS

    with one_line_errors("reproduce"):
        gpu = _has_gpu()
        name = auto_setting(dataset, gpu=gpu) if setting == "auto" else setting
        place = folder or Path("runs") / f"reproduce-{dataset}-{name}"
        study = reproduction(
            dataset,
            place,
            root=root,
            setting=setting,
            methods=methods or tuple(PAPER_METHODS),
            n_trials=trials,
            n_seeds=seeds,
            steps=steps,
            options_from=options_from,
            gpu=gpu,
        )
        setup = study.setting
        n_runs = len(study.methods) * (setup.n_trials * setup.n_folds + setup.n_seeds)
        say(
            f"{dataset}, {name}: {len(study.methods)} losses, {setup.n_trials} trials on {setup.n_folds} choice(s) "
            f"of validation classes, then {setup.n_seeds} seeds: {n_runs} runs in {place}"
        )
        try:
            comparison = study.run(n_jobs=jobs or (1 if gpu else os.cpu_count() or 1))
        except KeyboardInterrupt:
            say(f"facetric reproduce: stopped; the same command goes on from what is in {place}")
            raise typer.Exit(130) from None
        picture = save_comparison(comparison, study.folder / "table.png")
        page = make_report(study.final_folder(list(study.methods)[-1], 0)).path
    typer.echo(comparison_text(comparison))
    typer.echo(f"Written: {study.folder / 'table.md'}, {picture}, {study.folder / 'study.json'}, {page}")


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
