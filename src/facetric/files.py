"""Atomic writes: files that are never half-written."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

_PART = re.compile(r"^\..+\.(\d+)\.part$")


def write_atomically(path: Path, data: bytes) -> None:
    """The file has its old content or all of the new, whatever happens: a temporary file, fsync, rename, fsync of the folder."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # the file that was wanted, not the temporary one
    finally:
        part.unlink(missing_ok=True)  # after the rename there is nothing to remove
    if os.name == "posix":  # elsewhere a folder cannot be opened; the rename is atomic all the same
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_stale_parts(*folders: Path) -> None:
    """Remove temporary files left by killed processes."""
    for folder in folders:
        with suppress(OSError):
            for path in folder.iterdir():
                if (found := _PART.match(path.name)) and not _is_alive(int(found[1])):
                    path.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    if process == os.getpid() or os.name != "posix":  # elsewhere os.kill would end the process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # another user's process
    return True
