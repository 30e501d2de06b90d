"""Image files, datasets of them, and the pixels that a network sees."""

from facetric.images.cache import Cache, CacheError, MappedArray, cache_folder, find_caches, remove_cache
from facetric.images.check import DatasetCheck, check_dataset
from facetric.images.dataset import SPLITS, ImageDataset
from facetric.images.decoding import MAX_PIXELS, ImageError, decode_image, open_file, open_image, upright_rgb
from facetric.images.glyphs import load_glyphs
from facetric.images.hashing import content_hash, content_hashes
from facetric.images.listing import ImageList, Problem, list_images
from facetric.images.preprocessing import CenterCrop, Crop, Preprocessing, RandomCrop, RandomResizedCrop
from facetric.images.readers import load_dataset, load_present
from facetric.images.sources import Arrays, Files, ImageSource, Prepared, as_source, made_ahead, prepare, source_of

__all__ = [
    "MAX_PIXELS",
    "SPLITS",
    "Arrays",
    "Cache",
    "CacheError",
    "CenterCrop",
    "Crop",
    "DatasetCheck",
    "Files",
    "ImageDataset",
    "ImageError",
    "ImageList",
    "ImageSource",
    "MappedArray",
    "Prepared",
    "Preprocessing",
    "Problem",
    "RandomCrop",
    "RandomResizedCrop",
    "as_source",
    "cache_folder",
    "check_dataset",
    "content_hash",
    "content_hashes",
    "decode_image",
    "find_caches",
    "list_images",
    "load_dataset",
    "load_glyphs",
    "load_present",
    "made_ahead",
    "open_file",
    "open_image",
    "prepare",
    "remove_cache",
    "source_of",
    "upright_rgb",
]
