"""A collection of photos: embedded, searched, grouped, corrected, searched for duplicates."""

from facetric.photos.collection import Collection, open_collection
from facetric.photos.decisions import ContradictionError, Decisions
from facetric.photos.duplicates import Duplicates, Group, check_duplicates, find_duplicates
from facetric.photos.folders import cluster_folder, embed_folder
from facetric.photos.groups import PhotoGroups, check_target
from facetric.photos.ingest import common_folder, thumbnail_of
from facetric.photos.pages import live_page, search_page
from facetric.photos.query import Match, Vote
from facetric.photos.store import Added, Hit, Status

__all__ = [
    "Added",
    "Collection",
    "ContradictionError",
    "Decisions",
    "Duplicates",
    "Group",
    "Hit",
    "Match",
    "PhotoGroups",
    "Status",
    "Vote",
    "check_duplicates",
    "check_target",
    "cluster_folder",
    "common_folder",
    "embed_folder",
    "find_duplicates",
    "live_page",
    "open_collection",
    "search_page",
    "thumbnail_of",
]
