"""A collection of photos: embedded, searched, grouped, corrected, searched for duplicates."""

from facetric.photos.collection import Collection, open_collection
from facetric.photos.decisions import ContradictionError, Decisions
from facetric.photos.duplicates import Duplicates, find_duplicates
from facetric.photos.folders import cluster_folder, embed_folder
from facetric.photos.groups import PhotoGroups
from facetric.photos.ingest import common_folder, thumbnail_of
from facetric.photos.labels import Vote
from facetric.photos.pages import live_page, search_page
from facetric.photos.query import Match, matched
from facetric.photos.store import Hit
from facetric.photos.table_links import read_links

__all__ = [
    "Collection",
    "ContradictionError",
    "Decisions",
    "Duplicates",
    "Hit",
    "Match",
    "PhotoGroups",
    "Vote",
    "cluster_folder",
    "common_folder",
    "embed_folder",
    "find_duplicates",
    "live_page",
    "matched",
    "open_collection",
    "read_links",
    "search_page",
    "thumbnail_of",
]
