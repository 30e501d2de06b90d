"""What is checked before anything is trained: validation and test classes for every score, images for every batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from facetric.images import ImageDataset
from facetric.images.readers import load_dataset
from facetric.losses import ClassBalancedBatches
from facetric.runs import FEWEST_TO_VALIDATE, BatchTable, DataTable

Labels = NDArray[np.int64]  # (n,) the class of each training image


def training_labels(data: DataTable, *, n_folds: int) -> tuple[list[Labels], bool]:
    """The labels that each fold of the search trains on, then those of the final runs; and whether the dataset says itself what
    validates.

    A ValueError if the dataset has no test classes, or a fold too little to validate on.
    """
    dataset = load_dataset(data.name, data.root, **data.options)
    n_test = len(np.unique(dataset.labels[dataset.splits == "test"]))
    if n_test < 2:
        raise ValueError(
            f"a study needs 2 test classes or more; {_place(data)} has {n_test}: add classes, raise the test fraction with "
            "--set data.options.test_fraction=0.5, or check the split column of the CSV file"
        )
    folds = [_fold_labels(dataset, data, fold) for fold in range(n_folds)]
    return [*folds, dataset.labels[dataset.splits == "train"]], "validation" in dataset.splits


def batch_problem(batches: BatchTable, label_sets: list[Labels]) -> str | None:
    """Why some of these training sets cannot fill a batch; None if all can."""
    for labels in label_sets:
        try:
            ClassBalancedBatches(
                labels,
                batch_size=batches.size,
                class_ratio=batches.class_ratio,
                images_per_class=batches.images_per_class,
            )
        except ValueError as error:
            return str(error)
    return None


def _fold_labels(dataset: ImageDataset, data: DataTable, fold: int) -> Labels:
    if "validation" not in dataset.splits:
        dataset = dataset.with_validation(data.validation_fraction, seed=fold)
    held_out = dataset.labels[dataset.splits == "validation"]
    sizes = np.bincount(held_out)
    n_classes = int((sizes > 0).sum())
    if n_classes > 1 and sizes.max() == 1:
        raise ValueError(
            f"no validation class of {_place(data)} has 2 images, so that nothing can be found again: hold out more classes with "
            "--set data.validation_fraction=0.4"
        )
    if n_classes < 2 or len(held_out) < FEWEST_TO_VALIDATE:
        raise ValueError(
            f"the search needs {FEWEST_TO_VALIDATE} validation images of 2 classes or more; {_place(data)} leaves "
            f"{len(held_out)} of {n_classes}: add images, or raise the fraction with --set data.validation_fraction=0.4"
        )
    labels: Labels = dataset.labels[dataset.splits == "train"]
    return labels


def _place(data: DataTable) -> str:
    return data.name if data.root is None else data.root
