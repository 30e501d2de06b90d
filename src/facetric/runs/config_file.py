"""Configurations on disk: TOML to TrainConfig and back, with `--set table.key=value` and `--unset table.key` on the way."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from facetric.runs.config import TABLES, TrainConfig
from facetric.runs.keys import dotted_keys, renamed
from facetric.runs.table import Table
from facetric.text import did_you_mean

NAMED_WEIGHTS = ("packaged", "hub", "none")  # anything else is a file
CONFIG_FILE = "config.toml"  # its name in a run folder
_CHECKSUM = "# sha256 of the settings below: "
_LIKE_CHECKSUM = re.compile(r"#.*[0-9a-f]{64}\s*$")


class ConfigError(ValueError):
    """An invalid configuration; the message is one line that says why and what to do."""


def read_config(path: str | os.PathLike[str], *, overrides: Iterable[str] = (), unset: Iterable[str] = ()) -> TrainConfig:
    """The run of a TOML file. Its name is that of the file unless the file has one.

    `unset` keys such as "loss.margin_weight" are dropped from the file first, then `overrides` such as "loss.margin=0.2" are set.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        raw = tomllib.loads(text)
    except FileNotFoundError:
        raise ConfigError(f"there is no configuration {path}: pass a TOML file such as configs/glyphs.toml") from None
    except (OSError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, no TOML, or a number of too many digits
        raise ConfigError(f"{path} cannot be read as TOML: {error}") from None
    if is_altered(text):
        raise ConfigError(
            f"{path} is not as the run wrote it, its checksum is wrong: restore it, or, if the change is yours, remove the line "
            f"that begins with `{_CHECKSUM.strip()}`"
        )
    for key in unset:
        apply_unset(raw, key, source=str(path))
    if isinstance(raw.get("run", {}), dict):
        raw.setdefault("run", {}).setdefault("name", path.stem)
    for override in overrides:
        apply_override(raw, override)
    return parse_config(raw, source=str(path))


def parse_config(raw: dict[str, Any], *, source: str = "the configuration") -> TrainConfig:
    """The run that plain tables describe, or a ConfigError of one line."""
    try:
        return TrainConfig.model_validate(raw)
    except ValidationError as error:
        problems = error.errors()
        first = problems[0]
        place = ".".join(str(part) for part in first["loc"])
        own = first.get("ctx", {}).get("error")
        message = str(own) if own is not None else f"{place}: {first['msg']}; got {first['input']!r}"
        if first["type"] == "missing":
            message = f"{place} is missing: set it"
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ConfigError(f"{source}: {message}{more}") from None


def to_toml(config: TrainConfig) -> str:
    """The resolved configuration as TOML; reading it gives the same run."""
    lines: list[str] = []
    for name in TABLES:
        table: Table = getattr(config, name)
        values = {key: value for key, value in table.model_dump().items() if value is not None}
        nested = {key: value for key, value in values.items() if isinstance(value, dict) and value}
        lines.append(f"[{name}]")
        lines += [f"{key} = {_toml_value(value)}" for key, value in values.items() if not isinstance(value, dict)]
        lines.append("")
        for key, entries in nested.items():
            lines.append(f"[{name}.{key}]")
            lines += [f"{_toml_key(inner)} = {_toml_value(value)}" for inner, value in entries.items()]
            lines.append("")
    return "\n".join(lines)


def with_checksum(toml: str) -> str:
    """What `to_toml` gave, under a first line with its checksum. Where the data lies may change: `data.root` does not count."""
    return f"{_CHECKSUM}{_digest(toml)}\n{toml}"


def is_altered(text: str) -> bool:
    """Whether a configuration has a checksum that is not its own, or not as it was written; one without is the user's."""
    lines = text.splitlines(keepends=True)
    if lines and _LIKE_CHECKSUM.match(lines[0]) and not lines[0].startswith(_CHECKSUM):
        return True
    found = [line.removeprefix(_CHECKSUM).strip() for line in lines if line.startswith(_CHECKSUM)]
    return bool(found) and found != [_digest("".join(line for line in lines if not line.startswith(_CHECKSUM)))]


def _digest(toml: str) -> str:
    kept = "".join(line for line in toml.splitlines(keepends=True) if not line.startswith("root = "))
    return hashlib.sha256(kept.encode()).hexdigest()


def resolve_paths(config: TrainConfig) -> TrainConfig:
    """The same run with absolute paths, so that it can be resumed from any folder."""
    data, folder = config.data, _absolute(config.run.folder)
    root = None if data.root is None else _absolute(data.root)
    options = {key: _absolute(str(value)) if key == "file" else value for key, value in data.options.items()}
    data = data.model_copy(update={"root": root, "options": options})
    weights = config.model.weights
    if weights is not None and weights not in NAMED_WEIGHTS:
        weights = str(Path(weights).expanduser().absolute())
    model = config.model.model_copy(update={"weights": weights})
    return config.model_copy(update={"run": config.run.model_copy(update={"folder": folder}), "data": data, "model": model})


def parse_override(override: str) -> tuple[str, Any]:
    """The key and the value of "table.key=value". The value is TOML, or else a string: paths and names need no quotes."""
    key, separator, text = (part.strip() for part in override.partition("="))
    parts = key.split(".")
    if not separator or len(parts) < 2 or not all(parts):
        raise ConfigError(f"--set takes table.key=value, as in --set loss.margin_weight=4; got {override!r}")
    if new := renamed(key):
        raise ConfigError(f"--set {override}: unknown key {key!r}; did you mean {new!r}?")
    try:
        return key, tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key, text
    except (ValueError, RecursionError):
        raise ConfigError(
            f"--set {key}={text[:20]}… is a number of too many digits, or too many lists in each other: pass a value such as "
            "--set run.steps=1000"
        ) from None


def apply_override(raw: dict[str, Any], override: str) -> None:
    """Set "table.key=value" in `raw`."""
    key, value = parse_override(override)
    try:
        set_key(raw, key.split("."), value)
    except ConfigError as error:
        raise ConfigError(f"--set {override}: {error}") from None


def apply_unset(raw: dict[str, Any], key: str, *, source: str = "the configuration") -> None:
    """Drop a key such as "loss.margin_weight", or a whole table such as "loss", from `raw`, where it must be."""
    table: Any = raw
    *tables, last = key.strip().split(".")
    for part in tables:
        table = table.get(part) if isinstance(table, dict) else None
    if not isinstance(table, dict) or last not in table:
        known = [*raw, *dotted_keys(raw)]
        raise ConfigError(f"--unset {key}: {source} does not set it{did_you_mean(key, known) or ': leave it out'}")
    del table[last]


def set_key(raw: dict[str, Any], parts: Sequence[str], value: Any) -> None:
    """Set raw[parts[0]][parts[1]]…; missing tables are made."""
    table = raw
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{part!r} is a value, not a table: set {part} itself")
    table[parts[-1]] = value


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def _toml_key(key: str) -> str:
    return key if key.replace("_", "a").replace("-", "a").isalnum() and key.isascii() else _toml_value(key)


def _toml_value(value: str | int | float | bool | tuple[str, ...] | tuple[int, ...]) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_toml_value(entry) for entry in value)}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)
