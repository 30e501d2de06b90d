"""Files that are never half written."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """The file has its old content or all of the new, whatever happens: a temporary file, fsync, rename, fsync of the folder."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)  # after the rename there is nothing to remove
    if os.name == "posix":  # elsewhere a folder cannot be opened; the rename is atomic all the same
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
