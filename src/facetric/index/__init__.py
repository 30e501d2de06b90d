"""An index of photos that is searched by vector: in a folder (SQLite), or on Milvus."""

from typing import TYPE_CHECKING

from facetric.lazy import loaded_on_use

if TYPE_CHECKING:
    from facetric.index.contract import Entry, Hit, Store
    from facetric.index.photo_index import Added, PhotoIndex, open_index
    from facetric.index.places import Status, recorded_run
    from facetric.index.queries import Match

__all__ = ["Added", "Entry", "Hit", "Match", "PhotoIndex", "Status", "Store", "open_index", "recorded_run"]

_HOMES = {
    "Added": "photo_index",
    "Entry": "contract",
    "Hit": "contract",
    "Match": "queries",
    "PhotoIndex": "photo_index",
    "Status": "places",
    "Store": "contract",
    "open_index": "photo_index",
    "recorded_run": "places",
}

__getattr__, __dir__ = loaded_on_use(__name__, _HOMES, __all__)
