"""Public names that are loaded on first use, so that a command that does not need torch or matplotlib starts at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def loaded_on_use(
    package: str, homes: Mapping[str, str], public: Sequence[str], *, submodules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`.

    `homes` are its lazy names with the submodule that each is in, `public` is its `__all__`, and `submodules` are those that
    are attributes of the package without having been imported.
    """

    def find(name: str) -> Any:
        if name in submodules:
            return import_module(f"{package}.{name}")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(public)}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    def names() -> list[str]:
        return sorted({*public, *submodules, *vars(import_module(package))})

    return find, names
