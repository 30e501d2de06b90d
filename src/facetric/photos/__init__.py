"""New photos as they lie in folders: listed, embedded, kept in files of vectors, searched for duplicates."""

from typing import TYPE_CHECKING

from facetric.lazy import loaded_on_use

if TYPE_CHECKING:
    from facetric.photos.listing import PhotoList, Problem, list_photos

__all__ = ["PhotoList", "Problem", "list_photos"]

_HOMES = {"PhotoList": "listing", "Problem": "listing", "list_photos": "listing"}

__getattr__, __dir__ = loaded_on_use(__name__, _HOMES, __all__)
