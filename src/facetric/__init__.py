"""facetric: deep metric learning by facility location."""

from typing import TYPE_CHECKING, Any

from facetric.extras import watch_imports
from facetric.lazy import loaded_on_use

if TYPE_CHECKING:
    from facetric.losses import LOSSES, FacilityLocationLoss
    from facetric.solver import ClusteringProblem, Solution, solve

    __version__: str

__all__ = ["LOSSES", "ClusteringProblem", "FacilityLocationLoss", "Solution", "__version__", "solve"]

_HOMES = {
    "LOSSES": "losses",
    "FacilityLocationLoss": "losses",
    "ClusteringProblem": "solver",
    "Solution": "solver",
    "solve": "solver",
}

watch_imports()  # a package whose extra is not installed says so in one line


def __getattr__(name: str) -> Any:
    """Load public names on first use, so that `import facetric` (and `facetric --help`) stays free of torch."""
    if name == "__version__":
        from importlib.metadata import version

        return version("facetric")
    return loaded_on_use(__name__, _HOMES, __all__)(name)
