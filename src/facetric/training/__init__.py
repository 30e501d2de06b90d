"""Training: from a configuration to a run folder."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from facetric.training.config import TrainConfig
    from facetric.training.config_file import ConfigError, read_config
    from facetric.training.loop import RunResult, resume, train

__all__ = ["ConfigError", "RunResult", "TrainConfig", "read_config", "resume", "train"]

_HOMES = {
    "TrainConfig": "config",
    "ConfigError": "config_file",
    "read_config": "config_file",
    "RunResult": "loop",
    "resume": "loop",
    "train": "loop",
}


def __getattr__(name: str) -> Any:
    """Load the names on first use: a configuration is checked without waiting for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'facetric.training' has no attribute {name!r}; it has {', '.join(__all__)}")
    from importlib import import_module

    return getattr(import_module(f"facetric.training.{_HOMES[name]}"), name)
