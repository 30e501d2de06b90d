"""The table of all settings in docs/training.md, made from the descriptions in the configuration itself."""

from __future__ import annotations

from typing import Any

from pydantic.fields import FieldInfo

from facetric.config.config import TABLES


def settings_table() -> str:
    """Markdown: one table per TOML table, a row per key."""
    lines: list[str] = []
    for name, table in TABLES.items():
        lines += [f"### [{name}]", "", "| key | default | meaning |", "|---|---|---|"]
        lines += [f"| `{key}` | {_default(field)} | {field.description} |" for key, field in table.model_fields.items()]
        lines.append("")
    return "\n".join(lines)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value: Any = field.get_default(call_default_factory=True)
    if value is None or value == {}:
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


if __name__ == "__main__":
    print(settings_table())
