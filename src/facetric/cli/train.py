"""`facetric train` and `facetric resume`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from facetric.cli.errors import compile_kernels, is_first_process, one_line_errors, said_if_slow
from facetric.cli.options import Overrides, RunFolder

if TYPE_CHECKING:
    from facetric.images import ImageDataset
    from facetric.runs import TrainConfig
    from facetric.training import RunResult

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors and warnings only.")]


def train(
    config: Annotated[Path | None, typer.Argument(help="A TOML file such as configs/glyphs.toml; or pass --data.")] = None,
    data: Annotated[str | None, typer.Option(help="Instead of a file: folder, csv, huggingface, cub, cars, …")] = None,
    root: Annotated[Path | None, typer.Option(help="With --data: where the dataset is, such as path/to/photos.")] = None,
    output: Annotated[Path | None, typer.Option(help="The run folder to create; default runs/NAME.")] = None,
    networks: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Networks to compare, such as lite0,lite2,dinov2-small; default with one's own photos: those that are here.",
        ),
    ] = None,
    final: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Train the recipe of this run again, on all of its classes: for use, without scores."),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=0, help="Training steps.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of weights, batches, augmentation.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.")] = None,
    overrides: Overrides = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="TABLE.KEY", help="Drop a setting of the file, or a chosen one; may be repeated."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Train an embedding into a new run folder, from a config file or on your own images.

    --data folder --root path/to/photos takes one sub-folder per class; a third of the classes are held out for testing.
    Settings are chosen from the number of classes and images and from the machine, and printed before training starts;
    which network sees these photos best, and whether to train at all, is decided on held-out halves of the training classes.

    --networks lite0,lite2,dinov2-small says which networks are compared; one that is not here is downloaded.

    --final runs/photos trains what was chosen on all classes, those for testing included, into runs/photos-final.

    Whatever stops it, `facetric resume` continues from the last checkpoint.
    """
    with one_line_errors("train", quiet=quiet, when_interrupted=_INTERRUPTED):
        named = {"run.steps": steps, "run.seed": seed, "run.device": device}
        settings = [*(overrides or []), *(f"{key}={value}" for key, value in named.items() if value is not None)]
        if networks is not None:
            settings.append(f"run.choose_networks={json.dumps([name.strip() for name in networks.split(',')])}")
        if output is not None:
            settings += _place(output)
        if final is not None:
            if config is not None or data is not None or root is not None:
                raise ValueError(
                    f"--final takes the data and the settings of {final}: leave the config file, --data and --root out"
                )
            chosen, dataset = _final(final, settings, unset or []), None
        else:
            chosen, dataset = _chosen(config, data, root, settings, unset or [], quiet=quiet)
        from rich.console import Console

        from facetric.runs import Run
        from facetric.training import train as train_run

        if is_first_process():
            Run.new(chosen)  # fail now, not after the compilation
        compile_kernels()
        _exit_by_signal(train_run(chosen, dataset, console=Console(stderr=True, quiet=quiet)))


def resume(
    run: RunFolder,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Continue although training images have changed since the run started.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Resume a stopped run from its last checkpoint; the result is that of a run that never stopped."""
    with one_line_errors("resume", quiet=quiet, when_interrupted=_INTERRUPTED):
        from rich.console import Console

        from facetric.training import resume as resume_run

        _exit_by_signal(resume_run(run, accept_changes=accept_changes, console=Console(stderr=True, quiet=quiet)))


_INTERRUPTED = "stopped at once; if the run folder exists, `facetric resume` continues from its last checkpoint"


def _chosen(
    config: Path | None, data: str | None, root: Path | None, overrides: list[str], unset: list[str], *, quiet: bool
) -> tuple[TrainConfig, ImageDataset | None]:
    """The run of the file, or one that suits the data, with the choices printed and the images that it was chosen for."""
    own = "facetric train --data folder --root path/to/photos"
    if config is not None and (data is not None or root is not None):
        other = f"--data {data}" if data is not None else f"--root {root}"
        raise ValueError(
            f"pass a config file or --data, not both; got {config} and {other}: leave one of them out, or change the file's "
            "dataset with --set data.name=… --set data.root=…"
        )
    if config is not None:
        if config.is_dir():
            raise ValueError(
                f"{config} is a folder, not a TOML file; to train on its images: {own.replace('path/to/photos', str(config))}"
            )
        from facetric.runs import read_config

        return read_config(config, overrides=overrides, unset=unset), None
    if data is None:
        rule = "--root says where the dataset is, and --data what it is" if root is not None else "pass a config file or --data"
        raise ValueError(f"{rule}: {own}")
    from facetric.runs import recipe
    from facetric.text import printable

    with said_if_slow("loading torch"):
        import torch
    chosen = recipe(data, root, overrides=overrides, unset=unset, gpu=torch.cuda.is_available())
    if is_first_process() and not quiet:
        for line in chosen.reasons:
            typer.echo(printable(line), err=True)
    return chosen.config, chosen.dataset


def _final(run: Path, overrides: list[str], unset: list[str]) -> TrainConfig:
    """The recipe of a finished run, on all of its classes."""
    from facetric.runs import open_run, read_config

    opened = open_run(run)
    if opened.config.run.choose_minutes:
        raise ValueError(f"{run} has not chosen a recipe yet: finish it first with `{opened.resume_command}`")
    all_classes = [*_place(opened.path.with_name(f"{opened.path.absolute().name}-final")), "data.all_classes=true"]
    return read_config(opened.config_file, overrides=[*all_classes, "run.validate_every=0", *overrides], unset=unset)


def _place(output: Path) -> list[str]:
    """The run folder as settings."""
    path = output.expanduser().absolute()
    return [f"run.folder={json.dumps(str(path.parent))}", f"run.name={json.dumps(path.name)}"]


def _exit_by_signal(result: RunResult) -> None:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():  # else its threads may end with an abort when the interpreter does
        dist.destroy_process_group()
    if result.signal_number and not result.finished:
        raise typer.Exit(128 + result.signal_number)
