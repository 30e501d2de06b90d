"""A run: its configuration, its folder, its data and its scores."""

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
from facetric.runs.manifest import DataChanges, Manifest
from facetric.runs.recipes import FEWEST_TO_CHOOSE, FEWEST_TO_VALIDATE, PAPER_RATIOS, batch_shape, recipe
from facetric.runs.run import DivergedError, Run, RunFolderError, StaleResultError, open_run
from facetric.runs.scoring import RunEvaluation, evaluate_run
from facetric.runs.splits import SPLITS, new_images, resumed_images, run_images, size_and_pad
from facetric.runs.states import (
    MetricsLog,
    read_newest_state,
    read_rows,
    remove_earlier_states,
    remove_states,
    states,
    write_state,
)

__all__ = [
    "FEWEST_TO_CHOOSE",
    "FEWEST_TO_VALIDATE",
    "PAPER_RATIOS",
    "SPLITS",
    "BatchTable",
    "ConfigError",
    "DataChanges",
    "DataTable",
    "DivergedError",
    "LossTable",
    "Manifest",
    "MetricsLog",
    "OptimizerTable",
    "Run",
    "RunEvaluation",
    "RunFolderError",
    "RunTable",
    "StaleResultError",
    "TrainConfig",
    "batch_shape",
    "compare_runs",
    "dotted_keys",
    "evaluate_run",
    "first_difference",
    "new_images",
    "open_run",
    "parse_config",
    "parse_override",
    "read_config",
    "read_newest_state",
    "read_rows",
    "real_paths",
    "recipe",
    "remove_earlier_states",
    "remove_states",
    "resolve_paths",
    "resumed_images",
    "run_images",
    "set_key",
    "size_and_pad",
    "states",
    "write_state",
]
