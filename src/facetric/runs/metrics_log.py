"""metrics.jsonl: one JSON object per line, appended while a run trains, read by the figures."""

from __future__ import annotations

import json
import os
from contextlib import suppress
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
        self._file = path.open("ab")

    def append(self, row: dict[str, Any]) -> None:
        """One row, flushed at once: it survives the end of this process."""
        self._file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
        self._file.flush()

    def sync(self) -> None:
        """Flush to disk, before a checkpoint that relies on it."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        with suppress(OSError):  # a full disk has been reported by append
            self._file.close()


def read_rows(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The rows, and the number of lines that cannot be read (the last one may be half written)."""
    rows, n_broken = [], 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            n_broken += 1
            continue
        if isinstance(row, dict):
            rows.append(row)
        else:
            n_broken += 1
    return rows, n_broken


def _step_of(line: bytes) -> float | None:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return None
