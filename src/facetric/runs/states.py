"""Resume states: everything that an exact resume needs, in one file with a checksum, the two newest kept.

A state holds tensors and plain containers only and is read with torch's weights_only: opening one runs no code from it. It
carries the weights too, so that weights, optimizer and random states are always from the same step; the embedder files
beside it (best.safetensors, last.safetensors) are for inference.
"""

from __future__ import annotations

import hashlib
import io
import logging
import pickle
import re
from pathlib import Path
from typing import Any

import torch

from facetric.files import write_atomically
from facetric.runs.run import RunFolderError

_MAGIC = b"facetric resume state 1\n"
_N_KEPT = 2
_log = logging.getLogger("facetric")
_NAME = re.compile(r"^state_(\d{8,})\.pt$")


class DamagedStateError(ValueError):
    """A damaged resume state."""


def write_state(folder: Path, step: int, state: dict[str, Any]) -> None:
    """Save the state of `step`; older ones but the previous are removed once it is written."""
    payload = io.BytesIO()
    torch.save({"step": step, **state}, payload)
    data = payload.getvalue()
    write_atomically(folder / f"state_{step:08d}.pt", _MAGIC + hashlib.sha256(data).digest() + data)
    remove_earlier_states(folder, step)


def remove_earlier_states(folder: Path, step: int) -> None:
    """Those before the one before `step`. A resume calls it too: a process killed just after writing leaves one more."""
    earlier = [(at, path) for at, path in states(folder) if at <= step]
    for _, path in earlier[:-_N_KEPT]:
        path.unlink(missing_ok=True)


def read_newest_state(folder: Path) -> dict[str, Any] | None:
    """The newest intact state; None when none was ever saved. Damaged ones are reported and skipped."""
    found = states(folder)
    for _, path in reversed(found):
        try:
            return read_state(path)
        except (DamagedStateError, OSError) as error:
            _log.warning("%s is damaged (%s): using the one before it", path.name, error)
    if found:
        raise RunFolderError(f"none of the {len(found)} resume states in {folder} can be read: train again under another name")
    return None


def read_state(path: Path) -> dict[str, Any]:
    """The state in this file, or a DamagedStateError."""
    raw = path.read_bytes()
    start = len(_MAGIC) + 32
    if not raw.startswith(_MAGIC):
        raise DamagedStateError("it is not a resume state")
    if hashlib.sha256(memoryview(raw)[start:]).digest() != raw[len(_MAGIC) : start]:
        raise DamagedStateError("its checksum is wrong")
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(raw[start:]), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise DamagedStateError("it holds more than tensors and plain containers") from error
    return state


def remove_states(folder: Path) -> None:
    """For a finished run that will not be resumed: only its embedders are kept."""
    for _, path in states(folder):
        path.unlink()


def states(folder: Path) -> list[tuple[int, Path]]:
    """Step and file of every resume state, oldest first."""
    if not folder.is_dir():
        return []
    return sorted((int(match[1]), path) for path in folder.iterdir() if (match := _NAME.match(path.name)))
