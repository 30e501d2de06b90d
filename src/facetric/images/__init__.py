"""Image files, datasets of them, and the pixels that a network sees."""

from typing import TYPE_CHECKING

from facetric.lazy import loaded_on_use

if TYPE_CHECKING:
    from facetric.images.dataset import ImageDataset
    from facetric.images.decoding import ImageError, open_image
    from facetric.images.glyphs import contact_sheet, load_glyphs, look_alike_fraction
    from facetric.images.listing import PhotoList, Problem, list_photos
    from facetric.images.prepared import PreparedCacheError, PreparedImages, prepare
    from facetric.images.preprocessing import CenterCrop, Crop, Preprocessing, RandomCrop, RandomResizedCrop
    from facetric.images.readers.load_dataset import load_dataset
    from facetric.images.sources import Arrays, Files, ImageSource, as_source, made_ahead, source_of

__all__ = [
    "Arrays",
    "CenterCrop",
    "Crop",
    "Files",
    "ImageDataset",
    "ImageError",
    "ImageSource",
    "PhotoList",
    "PreparedCacheError",
    "PreparedImages",
    "Preprocessing",
    "Problem",
    "RandomCrop",
    "RandomResizedCrop",
    "as_source",
    "contact_sheet",
    "list_photos",
    "load_dataset",
    "load_glyphs",
    "look_alike_fraction",
    "made_ahead",
    "open_image",
    "prepare",
    "source_of",
]

_HOMES = {
    "Arrays": "sources",
    "CenterCrop": "preprocessing",
    "Crop": "preprocessing",
    "Files": "sources",
    "ImageDataset": "dataset",
    "ImageError": "decoding",
    "ImageSource": "sources",
    "PhotoList": "listing",
    "PreparedCacheError": "prepared",
    "PreparedImages": "prepared",
    "Preprocessing": "preprocessing",
    "Problem": "listing",
    "RandomCrop": "preprocessing",
    "RandomResizedCrop": "preprocessing",
    "as_source": "sources",
    "contact_sheet": "glyphs",
    "list_photos": "listing",
    "load_dataset": "readers.load_dataset",
    "load_glyphs": "glyphs",
    "look_alike_fraction": "glyphs",
    "made_ahead": "sources",
    "open_image": "decoding",
    "prepare": "prepared",
    "source_of": "sources",
}

__getattr__, __dir__ = loaded_on_use(__name__, _HOMES, __all__)
