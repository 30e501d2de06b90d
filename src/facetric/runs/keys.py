"""The "table.key" names of settings, and what version 0.1 called them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Keys and tables of version 0.1 under their new names.
RENAMED = {
    "optimiser": "optimizer",
    "data.validation_share": "data.validation_fraction",
    "data.mirror": "data.flip",
    "data.options.test_share": "data.options.test_fraction",
}


def renamed(key: str) -> str | None:
    """What a key of version 0.1 is called now; None if it was not renamed.

    >>> renamed("optimiser.head_lr"), renamed("optimizer.head_lr")
    ('optimizer.head_lr', None)
    """
    for old, new in RENAMED.items():
        if key == old or key.startswith(old + "."):
            return new + key.removeprefix(old)
    return None


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


def with_loggers(raw: Any) -> Any:
    """Tables with run.loggers for run.tensorboard, its name in earlier run folders.

    >>> with_loggers({"run": {"name": "first", "tensorboard": True}})
    {'run': {'loggers': ['tensorboard'], 'name': 'first'}}
    """
    run = raw.get("run") if isinstance(raw, dict) else None
    if not isinstance(run, dict) or not isinstance(run.get("tensorboard"), bool):
        return raw
    rest = {key: value for key, value in run.items() if key != "tensorboard"}
    return {**raw, "run": {"loggers": ["tensorboard"], **rest} if run["tensorboard"] else rest}
