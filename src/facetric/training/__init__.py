"""Training: from a configuration to a run folder."""

from typing import TYPE_CHECKING

from facetric.lazy import loaded_on_use

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

# A configuration is checked without waiting for torch.
__getattr__ = loaded_on_use(__name__, _HOMES, __all__)
