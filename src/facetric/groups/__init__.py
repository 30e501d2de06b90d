"""Unsorted photos in groups: a table, a page to correct them on, folders; and decisions that last."""

from typing import TYPE_CHECKING

from facetric.lazy import loaded_on_use

if TYPE_CHECKING:
    from facetric.groups.decisions import Decisions
    from facetric.groups.folder import cluster_folder
    from facetric.groups.photo_groups import PhotoGroups

__all__ = ["Decisions", "PhotoGroups", "cluster_folder"]

_HOMES = {"Decisions": "decisions", "PhotoGroups": "photo_groups", "cluster_folder": "folder"}

__getattr__, __dir__ = loaded_on_use(__name__, _HOMES, __all__)
