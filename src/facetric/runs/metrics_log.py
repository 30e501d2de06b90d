"""metrics.jsonl: one JSON object per line, appended while a run trains, read by the figures."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


class MetricsLog:
    """The rows of a run in training. Rows beyond the step that a resumed run starts from are cut off, nothing else."""

    def __init__(self, path: Path, *, from_step: int) -> None:
        with path.open("ab+") as file:  # "a" creates it, reading finds where to cut
            file.seek(0)
            keep = 0
            for line in file:
                step = _step_of(line)
                if not line.endswith(b"\n") or from_step == 0 or (step is not None and step > from_step):
                    break
                keep += len(line)  # a damaged row in between stays as it is
            file.truncate(keep)
        self.path, self._file = path, path.open("ab")

    def append(self, row: dict[str, Any]) -> None:
        """One row, flushed at once: it survives the end of this process."""
        with self._named_errors():
            self._file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
            self._file.flush()

    def sync(self) -> None:
        """Flush to disk, before a checkpoint that relies on it."""
        with self._named_errors():
            os.fsync(self._file.fileno())

    def close(self) -> None:
        with suppress(OSError):  # a full disk has been reported by append
            self._file.close()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """The system names no file when it cannot write to an open one."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error


def read_rows(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The rows, and the number of lines that are damaged (the last one may be half written)."""
    found = [_row(line) for line in path.read_bytes().splitlines() if line.strip()]
    rows = [row for row in found if row is not None]
    return rows, len(found) - len(rows)


def _row(line: bytes) -> dict[str, Any] | None:
    """The row of a line; None if it is damaged."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _step_of(line: bytes) -> float | None:
    row = _row(line)
    try:
        return None if row is None else float(row["step"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
