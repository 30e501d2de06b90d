"""`facetric demo`: the whole pipeline on the built-in characters. Every stage runs once; a second call resumes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from facetric.cli.errors import compile_kernels, one_line_errors
from facetric.cli.options import Overrides
from facetric.progress import steps_shown

if TYPE_CHECKING:
    from facetric.evaluation import EvaluationReport
    from facetric.runs import Run, TrainConfig

_NEXT = """Next, your own photos, one sub-folder per class:
  facetric data check path/to/photos
  facetric train --data folder --root path/to/photos
  facetric evaluate runs/photos && facetric report runs/photos"""


def demo(overrides: Overrides = None) -> None:
    """See it work: train on built-in characters, score on unseen ones, write report.html, in about three minutes.

    The run is runs/demo. If the demo is stopped, start it again: it resumes and reuses finished stages.
    """
    started = time.monotonic()
    with one_line_errors("demo", when_interrupted="stopped; start it again to continue"):
        from facetric.report import write_report
        from facetric.runs import Run, recipe

        config = recipe("glyphs", overrides=["run.name=demo", *(overrides or ())]).config
        run = Run.of(config)
        _say("facetric demo: train a network on characters, then test it on characters it has never seen")
        compile_kernels()
        _train(config, run)
        try:
            report = run.evaluation()
            _say("scores before and after training: already done")
        except ValueError:  # none yet, damaged, or of an earlier checkpoint
            _say("scoring the trained network on characters it has never seen; then what there is without training")
            with steps_shown(lines=True, prefix="  ") as progress:
                report = run.evaluate(n_restarts=1, facility=False, progress=progress)
        if run.report_is_current():
            _say("report: already done")
        else:
            _say("writing the report with its map")
            with steps_shown(lines=True, prefix="  ") as progress:
                write_report(run.path, figures=False, progress=progress)
    _print_table({**report.baselines, "trained network": report})
    seconds = int(time.monotonic() - started)
    typer.echo(f"\n{run.report_file}: open it in a browser. {seconds // 60} min {seconds % 60} s in all.\n\n{_NEXT}")


def _train(config: TrainConfig, run: Run) -> None:
    """Train or resume, unless training is finished; an Exit when a signal stops it."""
    from rich.console import Console

    from facetric.runs import first_difference
    from facetric.training import resume, train

    console = Console(stderr=True)
    if not run.path.exists():
        _say(f"training: {config.run.steps} steps; drawing the characters first")
        result = train(config, console=console)
    else:
        if run.was_killed_at_start():
            raise ValueError(f"the demo was killed before it began to train: remove {run.path}, and start it again")
        if place := first_difference(config, run.config):
            name, key = place.split(".")
            found, value = (getattr(getattr(settings, name), key) for settings in (run.config, config))
            raise ValueError(
                f"{run.path} has other settings than this demo: {place} is {found} there and {value} here; give it the "
                "same --set, choose another name with --set run.name=…, or remove it"
            )
        if run.n_steps() >= config.run.steps:
            _say(f"training: already done, in {run.path}")
            return
        _say(f"training: {run.path} exists and is not finished; drawing the characters, then resuming it")
        result = resume(run.path, console=console)
    if result.signal_number:
        _say("facetric demo: start it again to continue")
        raise typer.Exit(128 + result.signal_number)


def _print_table(reports: dict[str, EvaluationReport]) -> None:
    from tabulate import tabulate

    from facetric.evaluation import percent

    first = next(iter(reports.values()))
    found = {name: (*report.recall_at_k.values(), report.nmi, report.map_at_r) for name, report in reports.items()}
    rows = [[name, *map(percent, scores)] for name, scores in found.items()]
    headings = ["", *(f"R@{k}" for k in first.recall_at_k), "NMI", "MAP@R"]
    typer.echo(f"{first.n_images:,} images of {first.n_classes:,} unseen characters, %; NMI of one start of k-means")
    typer.echo(tabulate(rows, headings, "rounded_outline", disable_numparse=True, stralign="right", colalign=("left",)))


def _say(line: str) -> None:
    typer.echo(line, err=True)
