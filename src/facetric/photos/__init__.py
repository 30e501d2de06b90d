"""A collection of photos: embedded, searched, grouped, corrected, searched for duplicates."""

from typing import TYPE_CHECKING

from facetric.lazy import loaded_on_use

if TYPE_CHECKING:
    from facetric.photos.collection import Added, Collection, open_collection
    from facetric.photos.contract import Entry, Hit, Store
    from facetric.photos.decisions import Decisions
    from facetric.photos.duplicates import Duplicates, Group, find_duplicates
    from facetric.photos.folder_groups import cluster_folder
    from facetric.photos.folder_vectors import FolderEmbedding, embed_folder
    from facetric.photos.photo_groups import PhotoGroups
    from facetric.photos.places import Status, recorded_run
    from facetric.photos.queries import Match

__all__ = [
    "Added",
    "Collection",
    "Decisions",
    "Duplicates",
    "Entry",
    "FolderEmbedding",
    "Group",
    "Hit",
    "Match",
    "PhotoGroups",
    "Status",
    "Store",
    "cluster_folder",
    "embed_folder",
    "find_duplicates",
    "open_collection",
    "recorded_run",
]

_HOMES = {
    "Added": "collection",
    "Decisions": "decisions",
    "Duplicates": "duplicates",
    "Entry": "contract",
    "FolderEmbedding": "folder_vectors",
    "Group": "duplicates",
    "Hit": "contract",
    "Match": "queries",
    "PhotoGroups": "photo_groups",
    "Collection": "collection",
    "Status": "places",
    "Store": "contract",
    "cluster_folder": "folder_groups",
    "embed_folder": "folder_vectors",
    "find_duplicates": "duplicates",
    "open_collection": "collection",
    "recorded_run": "places",
}

__getattr__, __dir__ = loaded_on_use(__name__, _HOMES, __all__)
