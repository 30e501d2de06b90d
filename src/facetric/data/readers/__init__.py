"""Readers: from the files of a dataset to the one record, a file per dataset."""

from facetric.data.readers.load import DATASETS, load_dataset

__all__ = ["DATASETS", "load_dataset"]
