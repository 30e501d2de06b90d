"""Errors of the commands: one line on stderr, and an exit status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def one_line_errors(command: str) -> Iterator[None]:
    """Print an error as one line. Exit status 2 for a usage error (ValueError), 1 for a failure (OSError, RuntimeError)."""
    try:
        yield
    except typer.Exit:  # a RuntimeError by inheritance
        raise
    except (ValueError, OSError, RuntimeError) as error:
        typer.echo(f"facetric {command}: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2 if isinstance(error, ValueError) else 1) from None
