"""What evaluation reads of a run's config.toml: the file as it is, without the training code that wrote it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def read_run_config(folder: Path) -> dict[str, Any]:
    """The tables of config.toml; [data] with a name is all that is relied on."""
    path = folder / "config.toml"
    if not path.is_file():
        what = "is not there"
        if folder.exists():
            what = "is no run folder: it has no config.toml" if folder.is_dir() else "is a file, not a run folder"
        raise ValueError(f"{folder} {what}; pass a folder made by `facetric train`")
    try:
        config = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no TOML ({error}): restore it from the configuration that was trained") from None
    if not isinstance(config.get("data"), dict) or "name" not in config["data"]:
        raise ValueError(f"{path} names no dataset: its table [data] needs a name, as `facetric train` writes it")
    return config
