"""The page of all settings, made from the descriptions in the configuration and in the losses."""

from __future__ import annotations

import inspect
import re
from typing import Any

from pydantic.fields import FieldInfo

from facetric.losses import LOSSES
from facetric.runs.config import TABLES, LossTable, loss_options


def settings_table() -> str:
    """Markdown: one table per TOML table, a row per key; under [loss] the options of the losses too."""
    lines: list[str] = []
    for name, table in TABLES.items():
        lines += [f"### [{name}]", "", "| key | default | meaning |", "|---|---|---|"]
        lines += [f"| `{key}` | {_field_default(field)} | {field.description} |" for key, field in table.model_fields.items()]
        lines += ["", *_option_rows(), ""] if table is LossTable else [""]
    return "\n".join(lines)


def option_rows() -> dict[tuple[str, str], tuple[list[str], str]]:
    """(key, default) → the losses that have it, and its meaning; without the keys that [loss] has for every loss."""
    rows: dict[tuple[str, str], tuple[list[str], str]] = {}
    for name in LOSSES:
        for key, value in loss_options(name).items():
            if key not in LossTable.model_fields:
                default = _shown(value)
                names, meaning = rows.get((key, default), ([], ""))
                rows[key, default] = [*names, name], meaning or _meanings(name).get(key, "")
    return rows


def _meanings(loss: str) -> dict[str, str]:
    """What the docstring of a loss says under `Args:`."""
    section = re.search(r"^Args:\n((?: +.*\n?)+)", inspect.getdoc(LOSSES[loss]) or "", re.MULTILINE)
    entries = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", section[1], re.MULTILINE) if section else []
    return {name: re.sub(r"\s*\n\s*", " ", text) for name, text in entries}


def _option_rows() -> list[str]:
    lines = ["The options of the losses are keys of `[loss]` too; `none` stands for None:", ""]
    lines += ["| key | of | default | meaning |", "|---|---|---|---|"]
    for (key, default), (names, meaning) in option_rows().items():
        lines.append(f"| `{key}` | {', '.join(names)} | {default} | {meaning} |")
    return lines


def _field_default(field: FieldInfo) -> str:
    return "required" if field.is_required() else _shown(field.get_default(call_default_factory=True))


def _shown(value: Any) -> str:
    if value is None or value in ({}, ()):
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


if __name__ == "__main__":
    print(settings_table())
