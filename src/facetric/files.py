"""Files that are never half-written, and records that carry their checksum."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import socket
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_HOST = re.sub(r"[^A-Za-z0-9-]", "_", socket.gethostname())[:40]
_PART = re.compile(rf"^\..+\.{_HOST}\.(\d+)\.part$")  # of this machine: those of another one may be alive
_LONGEST = 120  # bytes of a name that become part of a temporary one; file systems allow 255 in all


def write_atomically(path: Path, data: bytes, *, sync: bool = True) -> None:
    """The file has its old content or all of the new, whatever happens: a temporary file, fsync, rename, fsync of the folder.

    A symbolic link in its place is replaced, never followed. What killed writers of the same file left is removed. Without `sync`
    a power cut may leave a broken file: for what can be made again.
    """
    part = part_of(path)
    try:
        with part.open("wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # the file that was wanted, not the temporary one
    finally:
        part.unlink(missing_ok=True)  # after the rename there is nothing to remove
    if sync:
        remove_stale_parts(path.parent, start=part.name.removesuffix(f"{os.getpid()}.part"))
    if sync and os.name == "posix":  # elsewhere a folder cannot be opened; the rename is atomic all the same
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def part_of(path: Path) -> Path:
    """The temporary name under which this process writes a file; it names the machine and the process, so that it can be
    removed when that process is gone.
    """
    name = path.name
    if len(raw := os.fsencode(name)) > _LONGEST:
        name = hashlib.blake2b(raw, digest_size=16).hexdigest()
    return path.with_name(f".{name}.{_HOST}.{os.getpid()}.part")


def remove_stale_parts(*folders: Path, start: str = ".") -> None:
    """Remove temporary files, with names that start so, left by killed processes of this machine."""
    for folder in folders:
        with suppress(OSError):
            for name in os.listdir(folder):
                if name.startswith(start) and (found := _PART.match(name)) and not _is_alive(int(found[1])):
                    (folder / name).unlink(missing_ok=True)


def refuse_links(folder: Path, *, left_out: Collection[str] = ()) -> None:
    """An OSError if there is a symbolic link below a folder that came from elsewhere: writing would change what it points to.

    `left_out`: names of folders that are not looked into; they are no links themselves.
    """
    for place, folders, files in os.walk(folder):
        names = (*folders, *files)
        folders[:] = [name for name in folders if name not in left_out]
        for name in names:
            if os.path.islink(path := os.path.join(place, name)):
                raise OSError(
                    errno.ELOOP, "is a symbolic link, and writing would change what it points to: put the file itself there", path
                )


def pyarrow_modules() -> tuple[Any, Any]:
    """pyarrow and pyarrow.parquet; a ValueError where they are not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError("Parquet and Arrow files need pyarrow: pip install 'facetric[parquet]', or use .npz or .csv") from None
    return pyarrow, pyarrow.parquet


def checksummed(values: Mapping[str, Any]) -> bytes:
    """A record as JSON with a checksum of its values."""
    plain = json.loads(json.dumps(values, allow_nan=False))
    return (json.dumps({"sha256": _digest(plain), **plain}, indent=1) + "\n").encode()


def read_checksummed(data: bytes, *, required: bool = True) -> dict[str, Any]:
    """The values of a record that `checksummed` wrote; a ValueError for anything else.

    `required=False` also takes records without a checksum, of earlier versions or written by hand.
    """
    try:
        values = json.loads(data.decode())
        if not isinstance(values, dict) or (required and "sha256" not in values):
            raise ValueError("it has no checksum")
        name = "sha256" if "sha256" in values else next(iter(values), "")  # the first one, if its name is damaged
        if (values.get(name) == _digest({key: value for key, value in values.items() if key != name})) != (name == "sha256"):
            raise ValueError("its checksum is wrong")
        values.pop("sha256", None)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return values


def _digest(values: Mapping[str, Any]) -> str:
    """Of plain JSON values, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


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
