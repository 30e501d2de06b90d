"""facetric: deep metric learning by facility location."""

from importlib import import_module
from typing import Any

_OFFERED = {  # what is loaded on first use, by the room that it comes from; __init__.pyi says the same to type checkers
    "cli": (),
    "clustering": ("AverageLinkage", "FacilityLocation", "PairLinkage", "PairModel", "calibrate"),
    "embedder": ("Embedder", "Embedding", "build_network", "load"),
    "evaluation": ("evaluate",),
    "images": (),
    "losses": ("LOSSES", "ClassBalancedBatches", "FacilityLocationLoss", "GlobalBatch", "SubsampledLoss"),
    "losses.solver": ("ClusteringProblem", "Solution", "solve"),
    "metrics": (),
    "photos": ("open_collection",),
    "report": (),
    "runs": ("compare_runs", "open_run", "read_config"),
    "service": (),
    "training": ("resume", "train"),
}
_HOMES = {name: room for room, names in _OFFERED.items() for name in names}
_HOMES |= {room: room for room in _OFFERED if "." not in room}
__all__ = [*sorted(name for name, room in _HOMES.items() if name != room), "__version__"]  # noqa: PLE0604


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    """Load rooms and public names on first use, so that `import facetric` and `facetric --help` stay free of torch."""
    if name == "__version__":
        from importlib.metadata import version

        return version("facetric")
    if name not in _HOMES:
        raise AttributeError(f"module 'facetric' has no attribute {name!r}; it has {', '.join(__all__)}")
    try:
        room = import_module(f"facetric.{_HOMES[name]}")
        return room if name == _HOMES[name] else getattr(room, name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("facetric"):
            raise
        raise ImportError(f"facetric.{name} needs {error.name}: pip install 'facetric[photos]'", name=error.name) from None
