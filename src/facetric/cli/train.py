"""`facetric train` and `facetric resume`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from facetric.cli.waiting import compile_kernels, said_if_slow

if TYPE_CHECKING:
    from facetric.config import TrainConfig
    from facetric.training import RunResult


def train(
    config: Annotated[
        Path | None,
        typer.Argument(help="A TOML file such as configs/glyphs.toml. Or none, and --data.", show_default=False),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Instead of a file: folder, csv, cub, cars, products or glyphs.", show_default=False),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(help="With --data: where the dataset lies, such as path/to/photos.", show_default=False),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change a setting; may be repeated.", show_default=False),
    ] = None,
) -> None:
    """Train an embedding into a new run folder: as a configuration says, or on your own images with settings that suit them.

    --data folder --root path/to/photos takes one sub-folder per class; half of the classes are kept to test on.

    The settings are then chosen by the number of classes and images and by the machine, and told before training begins.

    Whatever stops it, facetric resume goes on from the last checkpoint.

    Exit status: 0 trained, 1 an error while training, 2 the configuration cannot be a run, 130 or 143 stopped by a signal.
    """

    def work() -> RunResult:
        chosen = _chosen(config, data, root, overrides or [])
        from facetric.runs.run import RunFolder
        from facetric.training import train as train_run

        if _is_first():
            RunFolder.of(chosen).refuse_existing()  # now, not after the compilation
        compile_kernels()
        return train_run(chosen)

    _report("train", work)


def _chosen(config: Path | None, data: str | None, root: Path | None, overrides: list[str]) -> TrainConfig:
    """The run of the file, or one that suits the data, with what was chosen told."""
    own = "facetric train --data folder --root path/to/photos"
    if config is not None and (data is not None or root is not None):
        raise ValueError(
            f"a run is told by a file or by --data and --root; got {config} and "
            f"{'--data ' + data if data is not None else '--root ' + str(root)}: leave one of them out, or change the file's "
            "dataset with --set data.name=… --set data.root=…"
        )
    if config is not None:
        if config.is_dir():
            raise ValueError(
                f"{config} is a folder, not a TOML file; to train on its images: {own.replace('path/to/photos', str(config))}"
            )
        from facetric.config import read_config

        return read_config(config, overrides=overrides)
    if data is None:
        rule = (
            "--root says where the dataset lies, and --data what it is"
            if root is not None
            else "a run needs a TOML file or --data"
        )
        raise ValueError(f"{rule}: {own}")
    from facetric.config.defaults import choose_run

    with said_if_slow("loading torch"):
        import torch
    chosen = choose_run(data, root, overrides=overrides, gpu=torch.cuda.is_available())
    if _is_first():
        for line in chosen.reasons:
            typer.echo(line, err=True)
    return chosen.config


def resume(run: Annotated[Path, typer.Argument(help="A run folder such as runs/glyphs.", show_default=False)]) -> None:
    """Go on with a run that was stopped, as if it had never been.

    Exit status: as for facetric train.
    """

    def work() -> RunResult:
        from facetric.training import resume as resume_run

        return resume_run(run)

    _report("resume", work)


def _report(command: str, work: Callable[[], RunResult]) -> None:
    """Run, turn errors into one line, and signals into the exit status that shells expect."""
    try:
        result = work()
    except KeyboardInterrupt:
        typer.echo(
            f"facetric {command}: stopped at once; if the run has its folder already, facetric resume goes on from its last "
            "checkpoint",
            err=True,
        )
        raise typer.Exit(130) from None
    except (ValueError, OSError, RuntimeError) as error:
        from facetric.data import ImageError
        from facetric.losses.global_batch import PeerError

        if isinstance(error, ImageError):
            error = ValueError(f"{error} (`facetric data check` lists all such files)")
        if not isinstance(error, PeerError) or _is_first():  # the failing process says it, and the first
            typer.echo(f"facetric {command}: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2 if isinstance(error, ValueError) else 1) from None
    if result.signal_number:
        raise typer.Exit(128 + result.signal_number)


def _is_first() -> bool:
    """Whether this is the first process of torchrun, or the only one."""
    return os.environ.get("RANK", "0") == "0"
