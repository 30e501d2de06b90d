"""From disk to labelled images to batches."""

from facetric.data.dataset import ImageDataset

__all__ = ["ImageDataset"]
