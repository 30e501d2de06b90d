"""Resume states: everything that an exact resume needs, in one file with a checksum, the two newest kept.

A state holds tensors and plain containers only and is read with torch's weights_only: opening one runs no code from it. It
carries the weights too, so that weights, optimizer and random states are always from the same step; the embedder files
beside it (best.safetensors, last.safetensors) are for inference.

metrics.jsonl, a JSON object per line, is appended while a run trains.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import pickle
import re
from pathlib import Path
from typing import Any

import torch

from facetric.files import write_atomically

_MAGIC = b"facetric resume state 1\n"
_N_KEPT = 2
_log = logging.getLogger("facetric")
_NAME = re.compile(r"^state_(\d{8,})\.pt$")


class DivergedError(RuntimeError):
    """The loss, the weights or the embeddings of a run are NaN or infinite, or the embeddings zero."""


class RunFolderError(OSError):
    """The run folder cannot be created, read or written; the message is one line that says where, why and what to do."""


def write_state(folder: Path, step: int, state: dict[str, Any]) -> None:
    """Save the state of `step`; older ones but the previous are removed once it is written."""
    payload = io.BytesIO()
    torch.save({"step": step, **state}, payload)
    data = payload.getvalue()
    write_atomically(folder / f"state_{step:08d}.pt", _MAGIC + hashlib.sha256(data).digest() + data)
    remove_earlier_states(folder, step)


def remove_earlier_states(folder: Path, step: int) -> None:
    """Those before the one before `step`."""
    earlier = [(at, path) for at, path in states(folder) if at <= step]
    for _, path in earlier[:-_N_KEPT]:
        path.unlink(missing_ok=True)


def read_newest_state(folder: Path) -> dict[str, Any] | None:
    """The newest intact state; None when none was ever saved. Damaged ones are reported and skipped."""
    found = states(folder)
    for _, path in reversed(found):
        try:
            return read_state(path)
        except (ValueError, OSError) as error:
            _log.warning("%s is damaged (%s): using the one before it", path.name, error)
    if found:
        raise RunFolderError(f"none of the {len(found)} resume states in {folder} can be read: train again under another name")
    return None


def read_state(path: Path) -> dict[str, Any]:
    """The state in this file, or a ValueError."""
    raw = path.read_bytes()
    start = len(_MAGIC) + 32
    if not raw.startswith(_MAGIC):
        raise ValueError("it is not a resume state")
    if hashlib.sha256(memoryview(raw)[start:]).digest() != raw[len(_MAGIC) : start]:
        raise ValueError("its checksum is wrong")
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(raw[start:]), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError("it holds more than tensors and plain containers") from error
    return state


def states(folder: Path) -> list[tuple[int, Path]]:
    """Step and file of every resume state, oldest first."""
    if not folder.is_dir():
        return []
    return sorted((int(match[1]), path) for path in folder.iterdir() if (match := _NAME.match(path.name)))


def append_row(path: Path, row: dict[str, Any]) -> None:
    """A row of metrics.jsonl, flushed at once: it survives the end of this process."""
    try:
        with path.open("ab") as file:
            file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
    except OSError as error:  # the system names no file when it cannot write to an open one
        raise OSError(error.errno, error.strerror, str(path)) from error


def cut_rows(path: Path, *, after: int) -> None:
    """Drop the rows beyond the step that a resumed run starts from, and one that is half written; nothing else."""
    with path.open("ab+") as file:  # "a" creates it
        file.seek(0)
        keep = 0
        for line in file:
            if not line.endswith(b"\n") or after == 0 or _step_of(line) > after:
                break
            keep += len(line)  # a damaged row in between stays as it is
        file.truncate(keep)


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


def _step_of(line: bytes) -> float:
    try:
        return float((_row(line) or {})["step"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return 0.0
