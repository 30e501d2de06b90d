"""What a command left in a folder, bitwise but for clocks, and how it differs from what it leaves undisturbed."""

import hashlib
import json
import os
import sqlite3
from pathlib import Path

import torch

from facetric.runs.states import read_state


def state_of(folder: Path) -> dict[str, object]:
    """Everything in a folder by name, bitwise but for clocks: databases by their rows, locks left out."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file() and (path.name != "lock" and not name.endswith((".lock", ".sqlite-wal", ".sqlite-shm"))):
            found[name] = _content(path)
    return found


def difference(found: dict, expected: dict) -> str:
    """The names of files that differ; empty if none do."""
    names = [name for name in {**expected, **found} if found.get(name) != expected.get(name)]
    kinds = {name: "missing" if name not in found else "not expected" if name not in expected else "different" for name in names}
    return ", ".join(f"{name} ({kind})" for name, kind in kinds.items())


def _content(path: Path) -> object:
    data = path.read_bytes()
    if path.name == "report.html" and {"study", "demo"} & set(path.parts):
        return "a report"  # of rows with their times, which training wrote meanwhile
    if path.suffix == ".sqlite":
        return rows_of(path)
    if path.suffix == ".pt":
        return _plain(read_state(path))  # pickled again, equal objects may share their bytes or not
    if path.name == "metrics.jsonl":
        return [_without_clock(json.loads(line)) for line in data.splitlines()]
    if path.name in ("environment.json", "study.json", "choice.json") or (
        path.parent.name == "search" and path.suffix == ".json"
    ):
        return _without_clock(json.loads(data))
    return hashlib.sha256(data).hexdigest()


def _without_clock(value):
    if isinstance(value, dict):
        left_out = ("timing", "sha256", "command", "git_commit", "seconds", "search_seconds", "why")
        return {key: _without_clock(entry) for key, entry in value.items() if key not in left_out}
    return [_without_clock(entry) for entry in value] if isinstance(value, list) else value


def _plain(value):
    """A resume state, tensors by their bytes."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest()
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def rows_of(path: Path) -> list:
    """All rows of a database, table by table."""
    connection = sqlite3.connect(path)
    try:
        connection.text_factory = bytes
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        rows = {table: connection.execute(f"SELECT * FROM {table.decode()}").fetchall() for (table,) in tables}
        return [(table, sorted(row for row in own if row[0] != b"version")) for table, own in rows.items()]  # it counts writes
    finally:
        connection.close()
