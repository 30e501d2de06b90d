"""Scores on held-out classes while a run trains, by the code that evaluates a finished run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from facetric.evaluation import evaluate
from facetric.metrics import Metric

Scores = dict[str, float]

KS = (1, 2, 4, 8)


def scores_of(vectors: NDArray[np.float32], labels: NDArray[np.int64], *, metric: Metric) -> Scores:
    """Retrieval and clustering by name, as `facetric evaluate --split validation` prints them."""
    report = evaluate(vectors, labels, ks=KS, metric=metric, facility=False)
    assert report.map_at_r is not None
    assert report.nmi is not None
    recall = {f"recall_at_{k}": value for k, value in report.recall_at_k.items()}
    return {**recall, "map_at_r": report.map_at_r, "nmi": report.nmi}


def check_validation(labels: NDArray[np.int64], *, can_be_off: bool = True) -> None:
    """Refuse validation images that cannot be scored, before anything is trained."""
    others, off = "", ""
    if can_be_off:
        others, off = "others with --set data.validation_seed=…, ", ", or validate on none: --set run.validate_every=0"
    sizes = np.bincount(labels)
    n_images, n_classes = len(labels), int((sizes > 0).sum())
    if n_classes > 1 and sizes.max() == 1:
        raise ValueError(
            f"none of the {n_classes} validation classes has 2 images, so that nothing can be found again: hold out "
            f"{others}more with --set data.validation_fraction=…{off}"
        )
    if n_classes < 2 or n_images <= max(KS):
        raise ValueError(
            f"validation scores Recall@{max(KS)} and needs {max(KS) + 1} images of 2 classes or more; there are {n_images} of "
            f"{n_classes}: add images, or raise --set data.validation_fraction=…{off}"
        )
