"""Image files, datasets of them, and the pixels that a network sees."""

from facetric.images.cache import Cache, cache_folder, find_caches, mapped_array
from facetric.images.check import DatasetCheck, check_dataset
from facetric.images.dataset import SPLITS, ImageDataset
from facetric.images.decoding import MAX_PIXELS, ImageError, decode_image, is_image_file, open_file, open_image
from facetric.images.hashing import content_hash, file_state
from facetric.images.listing import ImageList, Problem, list_images
from facetric.images.preprocessing import CenterCrop, Crop, Fit, Preprocessing, RandomCrop
from facetric.images.readers import load_dataset, load_present
from facetric.images.sources import Arrays, Files, ImageSource, Prepared, as_source

__all__ = [
    "MAX_PIXELS",
    "SPLITS",
    "Arrays",
    "Cache",
    "CenterCrop",
    "Crop",
    "DatasetCheck",
    "Files",
    "Fit",
    "ImageDataset",
    "ImageError",
    "ImageList",
    "ImageSource",
    "Prepared",
    "Preprocessing",
    "Problem",
    "RandomCrop",
    "as_source",
    "cache_folder",
    "check_dataset",
    "content_hash",
    "decode_image",
    "file_state",
    "find_caches",
    "is_image_file",
    "list_images",
    "load_dataset",
    "load_present",
    "mapped_array",
    "open_file",
    "open_image",
]
