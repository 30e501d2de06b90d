"""New photos as they lie in folders: listed, embedded, kept in files of vectors, searched for duplicates."""

from typing import TYPE_CHECKING

from facetric.lazy import loaded_on_use

if TYPE_CHECKING:
    from facetric.photos.duplicates import Duplicates, Group, find_duplicates
    from facetric.photos.folder import FolderEmbedding, embed_folder
    from facetric.photos.listing import PhotoList, Problem, list_photos
    from facetric.photos.vector_file import PhotoVectors, read_vectors, write_vectors

__all__ = [
    "Duplicates",
    "FolderEmbedding",
    "Group",
    "PhotoList",
    "PhotoVectors",
    "Problem",
    "embed_folder",
    "find_duplicates",
    "list_photos",
    "read_vectors",
    "write_vectors",
]

_HOMES = {
    "Duplicates": "duplicates",
    "FolderEmbedding": "folder",
    "Group": "duplicates",
    "PhotoList": "listing",
    "PhotoVectors": "vector_file",
    "Problem": "listing",
    "embed_folder": "folder",
    "find_duplicates": "duplicates",
    "list_photos": "listing",
    "read_vectors": "vector_file",
    "write_vectors": "vector_file",
}

__getattr__, __dir__ = loaded_on_use(__name__, _HOMES, __all__)
