"""One configuration = one run: the settings, their TOML file, and the choice of settings for a dataset."""

from facetric.config.config import TrainConfig
from facetric.config.config_file import ConfigError, read_config

__all__ = ["ConfigError", "TrainConfig", "read_config"]
