"""A collection of photos: embedded, searched, grouped, corrected, searched for duplicates."""

from facetric.photos.album import cluster_folder
from facetric.photos.collection import Collection, open_collection
from facetric.photos.decisions import ContradictionError, Decisions
from facetric.photos.duplicates import Duplicates, Group, check_duplicates, find_duplicates
from facetric.photos.groups import PhotoGroups, check_target
from facetric.photos.ingest import THUMBNAIL_SIDE, common_folder, embed_folder, is_below, thumbnail_of
from facetric.photos.pages import MOST_QUESTIONS, live_page, search_page
from facetric.photos.query import Match, Vote
from facetric.photos.store import Added, Hit, Status

__all__ = [
    "MOST_QUESTIONS",
    "THUMBNAIL_SIDE",
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
    "is_below",
    "live_page",
    "open_collection",
    "search_page",
    "thumbnail_of",
]
