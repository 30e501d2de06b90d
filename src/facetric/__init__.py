"""facetric: deep metric learning by facility location."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from facetric.losses import LOSSES, FacilityLocationLoss
    from facetric.solver import ClusteringProblem, Solution, solve

    __version__: str

__all__ = ["LOSSES", "ClusteringProblem", "FacilityLocationLoss", "Solution", "__version__", "solve"]

_HOMES = {
    "LOSSES": "facetric.losses",
    "FacilityLocationLoss": "facetric.losses",
    "ClusteringProblem": "facetric.solver",
    "Solution": "facetric.solver",
    "solve": "facetric.solver",
}


def __getattr__(name: str) -> Any:
    """Load public names on first use, so that `import facetric` (and `facetric --help`) stays free of torch."""
    if name == "__version__":
        from importlib.metadata import version

        return version("facetric")
    if name not in _HOMES:
        raise AttributeError(f"module 'facetric' has no attribute {name!r}; it has {', '.join(__all__)}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
