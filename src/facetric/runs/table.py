"""A table of the configuration: frozen, typed, and strict about its keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from facetric.text import did_you_mean


class Table(BaseModel):
    """A table of the TOML file: frozen, and unknown keys are refused with the nearest known one."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def known_keys(cls) -> list[str]:
        """What the table may hold."""
        return list(cls.model_fields)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, values: Any) -> Any:
        if isinstance(values, dict):
            known = cls.known_keys()
            for key in values:
                if key not in known:
                    raise ValueError(unknown_key(cls, str(key), known))
        return values


def unknown_key(table: type[Table], key: str, known: Iterable[str]) -> str:
    """A message with the nearest of the `known` keys of the table or, under the same name, with another table."""
    from facetric.runs.config import TABLES

    title = next((name for name, other in TABLES.items() if other is table), None)
    where = f"unknown key {key!r} in [{title}]" if title else f"unknown table or key {key!r}"
    if hint := did_you_mean(key, known):
        return where + hint
    homes = [name for name, other in TABLES.items() if key in other.known_keys()]
    return f"{where}; did you mean '{homes[0]}.{key}'?" if homes else f"{where}; known keys: {', '.join(known)}"
