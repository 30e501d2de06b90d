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
    from facetric.embedder import Embedding, load
    from facetric.losses import LOSSES, ClassBalancedBatches, FacilityLocationLoss, GlobalBatch, SubsampledLoss
    from facetric.losses.solver import ClusteringProblem, Solution, solve
    from facetric.runs import open_run

    __version__: str

__all__ = [
    "LOSSES",
    "ClassBalancedBatches",
    "ClusteringProblem",
    "Embedding",
    "FacilityLocationLoss",
    "GlobalBatch",
    "Solution",
    "SubsampledLoss",
    "__version__",
    "load",
    "open_run",
    "solve",
]

_HOMES = {
    "LOSSES": "losses",
    "ClassBalancedBatches": "losses",
    "FacilityLocationLoss": "losses",
    "GlobalBatch": "losses",
    "SubsampledLoss": "losses",
    "ClusteringProblem": "losses.solver",
    "Solution": "losses.solver",
    "Embedding": "embedder",
    "load": "embedder",
    "open_run": "runs",
    "solve": "losses.solver",
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
