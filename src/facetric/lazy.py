"""Public names that are loaded on first use, so that a command that does not need torch or matplotlib starts at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def loaded_on_use(package: str, homes: Mapping[str, str], public: Sequence[str]) -> Callable[[str], Any]:
    """A package's `__getattr__`: `homes` are its lazy names with the submodule that each is in, `public` its `__all__`."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(public)}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return find
