"""`facetric train` and `facetric resume`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from facetric.training import RunResult


def train(
    config: Annotated[Path, typer.Argument(help="A TOML file such as configs/glyphs.toml.", show_default=False)],
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="TABLE.KEY=VALUE", help="Change a setting of the file; may be repeated.", show_default=False
        ),
    ] = None,
) -> None:
    """Train an embedding as a configuration says, into a new run folder.

    Exit status: 0 trained, 1 stopped by an error while training, 2 the configuration cannot be a run, 130 or 143 stopped by
    a signal. Whatever stops it, `facetric resume` goes on from the last checkpoint.
    """

    def work() -> RunResult:
        from facetric.training import read_config
        from facetric.training import train as train_run

        return train_run(read_config(config, overrides=overrides or ()))

    _report("train", work)


def resume(run: Annotated[Path, typer.Argument(help="A run folder such as runs/glyphs.", show_default=False)]) -> None:
    """Go on with a run that was stopped, as if it had never been.

    Exit status: as for `facetric train`.
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
            f"facetric {command}: stopped at once; the last checkpoint is whole: facetric resume goes on from it", err=True
        )
        raise typer.Exit(130) from None
    except (ValueError, OSError, RuntimeError) as error:
        from facetric.training.processes import PeerError

        if not isinstance(error, PeerError) or os.environ.get("RANK", "0") == "0":  # the failing process says it, and the first
            typer.echo(f"facetric {command}: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2 if isinstance(error, ValueError) else 1) from None
    if result.signal_number:
        raise typer.Exit(128 + result.signal_number)
