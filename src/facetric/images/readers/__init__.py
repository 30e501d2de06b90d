"""Readers: from the files of a dataset to an ImageDataset, one module per dataset."""

from facetric.images.readers.load_dataset import DATASETS, load_dataset, load_present

__all__ = ["DATASETS", "load_dataset", "load_present"]
