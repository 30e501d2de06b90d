"""What a plain `pip install facetric` leaves out, named where it is missed.

The loss, the solver, the scores and the clustering need torch, numpy, numba and scikit-learn. Everything else (photos, training,
commands, pages) comes with the extra `facetric[photos]`. Where that is missing, importing one of the packages that need it
says so in one line, instead of "No module named 'pydantic'" from somewhere inside it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from types import ModuleType

NEED_PHOTOS = frozenset({"cli", "embedder", "images", "photos", "report", "runs", "service", "training"})
PHOTOS = (  # the modules of the extra; the packaged weights are left out, whoever needs them says so
    "PIL",
    "filelock",
    "huggingface_hub",
    "lightning_fabric",
    "matplotlib",
    "openTSNE",
    "pydantic",
    "rich",
    "safetensors",
    "scipy",
    "timm",
    "tomli_w",
    "torchvision",
    "typer",
)
SERVE = ("fastapi", "uvicorn")  # of the extra that facetric.service needs beside


class MissingExtraError(ModuleNotFoundError):
    """A package of facetric was imported whose extra is not installed; the message is one line with the way to install it."""


class _Watch:
    """A finder that finds nothing: it refuses our packages whose extra is missing, before they begin to load."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if name.startswith("facetric.") and name.removeprefix("facetric.") in NEED_PHOTOS:
            _refuse_without(PHOTOS, name, "photos")
        if name == "facetric.service":
            _refuse_without(SERVE, name, "serve")


def _refuse_without(modules: Sequence[str], name: str, extra: str) -> None:
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        listed = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        raise MissingExtraError(
            f"{name} needs packages that are not installed ({listed}): pip install 'facetric[{extra}]'", name=name
        )


def watch_imports() -> None:
    """From now on a missing extra is named."""
    if _Watch not in sys.meta_path:
        sys.meta_path.insert(0, _Watch)
