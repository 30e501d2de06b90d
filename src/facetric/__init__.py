"""facetric: deep metric learning by facility location."""

from typing import TYPE_CHECKING, Any

from facetric.extras import watch_imports
from facetric.lazy import loaded_on_use

if TYPE_CHECKING:
    from facetric import (  # noqa: F401
        cli,
        clustering,
        embedder,
        evaluation,
        images,
        losses,
        metrics,
        photos,
        report,
        runs,
        service,
        training,
    )
    from facetric.clustering import AverageLinkage, FacilityLocation, calibrate
    from facetric.embedder import Embedder, Embedding, build_network, load
    from facetric.evaluation import evaluate
    from facetric.losses import LOSSES, ClassBalancedBatches, FacilityLocationLoss, GlobalBatch, SubsampledLoss
    from facetric.losses.solver import ClusteringProblem, Solution, solve
    from facetric.photos import open_collection
    from facetric.runs import compare_runs, open_run, read_config
    from facetric.training import resume, train

    __version__: str

__all__ = [
    "LOSSES",
    "AverageLinkage",
    "ClassBalancedBatches",
    "ClusteringProblem",
    "Embedder",
    "Embedding",
    "FacilityLocation",
    "FacilityLocationLoss",
    "GlobalBatch",
    "Solution",
    "SubsampledLoss",
    "__version__",
    "build_network",
    "calibrate",
    "compare_runs",
    "evaluate",
    "load",
    "open_collection",
    "open_run",
    "read_config",
    "resume",
    "solve",
    "train",
]

_HOMES = {
    "AverageLinkage": "clustering",
    "FacilityLocation": "clustering",
    "calibrate": "clustering",
    "Embedder": "embedder",
    "Embedding": "embedder",
    "build_network": "embedder",
    "load": "embedder",
    "evaluate": "evaluation",
    "LOSSES": "losses",
    "ClassBalancedBatches": "losses",
    "FacilityLocationLoss": "losses",
    "GlobalBatch": "losses",
    "SubsampledLoss": "losses",
    "ClusteringProblem": "losses.solver",
    "Solution": "losses.solver",
    "solve": "losses.solver",
    "open_collection": "photos",
    "compare_runs": "runs",
    "open_run": "runs",
    "read_config": "runs",
    "resume": "training",
    "train": "training",
}

_PACKAGES = (
    "cli", "clustering", "embedder", "evaluation", "images", "losses", "metrics", "photos", "report", "runs", "service",
    "training",
)  # fmt: skip

_find, __dir__ = loaded_on_use(__name__, _HOMES, __all__, submodules=_PACKAGES)
watch_imports()  # a package whose extra is not installed says so in one line


def __getattr__(name: str) -> Any:
    """Load public names on first use, so that `import facetric` (and `facetric --help`) stays free of torch."""
    if name == "__version__":
        from importlib.metadata import version

        return version("facetric")
    return _find(name)
