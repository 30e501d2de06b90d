"""environment.json: what a run ran on, so that its results can be interpreted later."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import torch

from facetric.machine import installed_version

_PACKAGES = (
    "facetric",
    "torch",
    "torchvision",
    "timm",
    "lightning-fabric",
    "numpy",
    "numba",
    "safetensors",
    "pillow",
)


def describe_environment(*, seed: int, device: torch.device, n_processes: int) -> dict[str, Any]:
    """Versions, seed, device, threads and the git commit of the code when it runs from a checkout."""
    return {
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "seed": seed,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "processes": n_processes,
        "threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
        "git_commit": _git_commit(),
    }


def say_differences(path: Path, now: dict[str, Any], say: Callable[[str], None]) -> None:
    """One line if a resumed run may not be bitwise identical: other versions, threads, device or processes."""
    try:
        before = json.loads(path.read_bytes())
    except OSError:
        return
    except ValueError as error:
        say(f"{path} is damaged ({error}): whether the environment has changed is unknown")
        return
    changed = [key for key in ("versions", "device", "processes", "threads", "git_commit") if before.get(key) != now[key]]
    if changed:
        words = ", ".join(key if key == "versions" else f"{key} ({before.get(key)} → {now[key]})" for key in changed)
        say(f"the environment differs from the one the run started in: {words}; results may differ in the last digits")


def _version(package: str) -> str | None:
    try:
        return installed_version(package)
    except PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """The commit of the code, with "+changes" when files differ from it; None outside a checkout."""
    folder = Path(__file__).parent
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return f"{commit}+changes" if _git(folder, "status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()
