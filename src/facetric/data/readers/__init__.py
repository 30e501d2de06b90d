"""Readers: from the files of a dataset to an ImageDataset, one module per dataset."""

from facetric.data.readers.load import DATASETS, load_dataset

__all__ = ["DATASETS", "load_dataset"]
