"""A run: its configuration, its folder, its data and its scores."""

from facetric.runs.card import model_card
from facetric.runs.comparison import compare_runs
from facetric.runs.config import BatchTable, DataTable, LossTable, OptimizerTable, RunTable, TrainConfig
from facetric.runs.config_file import (
    ConfigError,
    dotted_keys,
    first_difference,
    parse_config,
    parse_override,
    read_config,
    real_paths,
    resolve_paths,
    set_key,
)
from facetric.runs.manifest import Manifest, new_images
from facetric.runs.network_settings import with_network
from facetric.runs.recipes import FEWEST_TO_CHOOSE, PAPER_RATIOS, batch_shape, recipe
from facetric.runs.run import Run, open_run
from facetric.runs.states import DivergedError, RunFolderError

__all__ = [
    "FEWEST_TO_CHOOSE",
    "PAPER_RATIOS",
    "BatchTable",
    "ConfigError",
    "DataTable",
    "DivergedError",
    "LossTable",
    "Manifest",
    "OptimizerTable",
    "Run",
    "RunFolderError",
    "RunTable",
    "TrainConfig",
    "batch_shape",
    "compare_runs",
    "dotted_keys",
    "first_difference",
    "model_card",
    "new_images",
    "open_run",
    "parse_config",
    "parse_override",
    "read_config",
    "real_paths",
    "recipe",
    "resolve_paths",
    "set_key",
    "with_network",
]
