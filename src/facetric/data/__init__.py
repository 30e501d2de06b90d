"""From disk to labeled images to batches."""

from typing import TYPE_CHECKING

from facetric.data.dataset import ImageDataset
from facetric.data.images import ImageError, open_image
from facetric.data.readers import load_dataset
from facetric.data.sampler import ClassBalancedBatches
from facetric.lazy import loaded_on_use

if TYPE_CHECKING:
    from facetric.data.glyphs import contact_sheet, load_glyphs, look_alike_fraction
    from facetric.data.loader import Batch, BatchLoader, views_in_order
    from facetric.data.prepared import PreparedCacheError, PreparedImages, prepare
    from facetric.data.transforms import CenterCrop, ImageFormat, RandomCrop, RandomResizedCrop

__all__ = [
    "Batch",
    "BatchLoader",
    "CenterCrop",
    "ClassBalancedBatches",
    "ImageDataset",
    "ImageError",
    "ImageFormat",
    "PreparedCacheError",
    "PreparedImages",
    "RandomCrop",
    "RandomResizedCrop",
    "contact_sheet",
    "load_dataset",
    "load_glyphs",
    "look_alike_fraction",
    "open_image",
    "prepare",
    "views_in_order",
]

_HOMES = {
    "contact_sheet": "glyphs",
    "load_glyphs": "glyphs",
    "look_alike_fraction": "glyphs",
    "Batch": "loader",
    "BatchLoader": "loader",
    "views_in_order": "loader",
    "PreparedCacheError": "prepared",
    "PreparedImages": "prepared",
    "prepare": "prepared",
    "CenterCrop": "transforms",
    "ImageFormat": "transforms",
    "RandomCrop": "transforms",
    "RandomResizedCrop": "transforms",
}

# `facetric data check` needs neither torch nor matplotlib.
__getattr__, __dir__ = loaded_on_use(__name__, _HOMES, __all__)
