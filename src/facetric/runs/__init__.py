"""A run: its configuration, its folder, its data and its scores."""

from typing import TYPE_CHECKING

from facetric.lazy import loaded_on_use

if TYPE_CHECKING:
    from facetric.runs.comparison import compare_runs
    from facetric.runs.config import TrainConfig
    from facetric.runs.config_file import ConfigError, read_config
    from facetric.runs.manifest import DataChanges, Manifest
    from facetric.runs.run import Run, RunFolderError, StaleResultError, open_run
    from facetric.runs.scoring import RunEvaluation, evaluate_run

__all__ = [
    "ConfigError",
    "DataChanges",
    "Manifest",
    "Run",
    "RunEvaluation",
    "RunFolderError",
    "StaleResultError",
    "TrainConfig",
    "compare_runs",
    "evaluate_run",
    "open_run",
    "read_config",
]

_HOMES = {
    "ConfigError": "config_file",
    "DataChanges": "manifest",
    "Manifest": "manifest",
    "Run": "run",
    "RunEvaluation": "scoring",
    "RunFolderError": "run",
    "StaleResultError": "run",
    "TrainConfig": "config",
    "compare_runs": "comparison",
    "evaluate_run": "scoring",
    "open_run": "run",
    "read_config": "config_file",
}

__getattr__, __dir__ = loaded_on_use(__name__, _HOMES, __all__)
