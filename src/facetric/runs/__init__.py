"""A run on disk: its folder, its data, and the chain from checkpoint to embeddings, evaluation and report."""

from typing import TYPE_CHECKING

from facetric.lazy import loaded_on_use

if TYPE_CHECKING:
    from facetric.runs.comparison import compare_runs
    from facetric.runs.evaluate import RunEvaluation, evaluate_run
    from facetric.runs.manifest import DataChanges, Manifest
    from facetric.runs.run import Run, RunFolderError, StaleResultError, open_run

__all__ = [
    "DataChanges",
    "Manifest",
    "Run",
    "RunEvaluation",
    "RunFolderError",
    "StaleResultError",
    "compare_runs",
    "evaluate_run",
    "open_run",
]

_HOMES = {
    "DataChanges": "manifest",
    "Manifest": "manifest",
    "Run": "run",
    "RunEvaluation": "evaluate",
    "RunFolderError": "run",
    "StaleResultError": "run",
    "compare_runs": "comparison",
    "evaluate_run": "evaluate",
    "open_run": "run",
}

__getattr__, __dir__ = loaded_on_use(__name__, _HOMES, __all__)
