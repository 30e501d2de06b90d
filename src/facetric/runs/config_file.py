"""Configurations on disk: TOML to TrainConfig and back, with `--set table.key=value` and `--unset table.key` on the way."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from facetric.runs.config import RUN_FOLDER, TABLES, TrainConfig
from facetric.text import did_you_mean

NAMED_WEIGHTS = ("packaged", "hub", "none")  # anything else is a file
CONFIG_FILE = "config.toml"  # its name in a run folder
FORMAT = 3  # of the configuration in a run folder; that of facetric 0.2 has none


class ConfigError(ValueError):
    """An invalid configuration; the message is one line that says why and what to do."""


def read_config(path: str | os.PathLike[str], *, overrides: Iterable[str] = (), unset: Iterable[str] = ()) -> TrainConfig:
    """The run of a TOML file. Its name is that of the file unless the file has one.

    `unset` keys such as "loss.margin_weight" are dropped from the file first, then `overrides` such as "loss.margin=0.2" are set.
    """
    path = Path(path)
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no configuration {path}: pass a TOML file such as configs/glyphs.toml") from None
    except (OSError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, no TOML, or a number of too many digits
        raise ConfigError(f"{path} cannot be read as TOML: {error}") from None
    for key in unset:
        apply_unset(raw, key, source=str(path))
    if isinstance(raw.get("run", {}), dict):
        raw.setdefault("run", {}).setdefault("name", path.stem)
    for override in overrides:
        apply_override(raw, override)
    return parse_config(raw, source=str(path))


def is_of_this_version(path: Path) -> bool:
    """Whether the configuration in a run folder was written by this version of facetric; see `FORMAT`."""
    return tomllib.loads(path.read_text(encoding="utf-8")).get("format") == FORMAT


def parse_config(raw: dict[str, Any], *, source: str = "the configuration") -> TrainConfig:
    """The run that plain tables describe, or a ConfigError of one line."""
    if (found := raw.get("format", FORMAT)) != FORMAT:
        raise ConfigError(f"{source} has the format {found!r}, and facetric reads {FORMAT}: install the version that wrote it")
    try:
        tables = {name: table for name, table in raw.items() if name != "format"}
        return TrainConfig.model_validate(tables, context=RUN_FOLDER if "format" in raw else None)
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
    tables = config.model_dump(mode="json", exclude_none=True)
    return tomli_w.dumps({"format": FORMAT, **{name: tables[name] for name in TABLES}})


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
    """Set the value at `raw[parts[0]][parts[1]]…`; missing tables are made."""
    table = raw
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{part!r} is a value, not a table: set {part} itself")
    table[parts[-1]] = value


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def dotted_keys(raw: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Every "table.key" of nested tables.

    >>> list(dotted_keys({"data": {"name": "csv", "options": {"seed": 1}}}))
    ['data.name', 'data.options.seed']
    """
    for key, value in raw.items():
        if isinstance(value, dict):
            yield from dotted_keys(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def first_difference(config: TrainConfig, other: TrainConfig) -> str | None:
    """The first "table.key" in which two runs differ. Run folder, name, threads and the spelling of paths do not count."""
    tables, others = (real_paths(run.model_dump()) for run in (config, other))
    for name, table in tables.items():
        for key, value in table.items():
            ignored = name == "run" and key in {"folder", "name", "threads"}
            if not ignored and others[name].get(key) != value:
                return f"{name}.{key}"
    return None


def real_paths(tables: dict[str, Any]) -> dict[str, Any]:
    """Plain tables with one spelling for every path to the same data."""
    data = dict(tables.get("data", {}))
    if data.get("root"):
        data["root"] = os.path.realpath(os.path.expanduser(data["root"]))
    if (options := data.get("options", {})).get("file"):
        data["options"] = {**options, "file": os.path.realpath(os.path.expanduser(options["file"]))}
    return {**tables, "data": data}
