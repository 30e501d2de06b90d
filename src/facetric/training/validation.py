"""Scores on held-out classes while a run trains: the same code that evaluates a finished run."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from facetric.embedder import Activations, Network, encode
from facetric.training.feed import LabeledImages
from facetric.training.health import refuse_bad_embeddings

Scores = dict[str, float]

KS = (1, 2, 4, 8)
SCORES = (*(f"recall_at_{k}" for k in KS), "map_at_r", "nmi")
_N_RESTARTS = 3  # k-means clusterings: the NMI of one is too noisy to choose by


class Validator:
    """Embeds the held-out images, one center crop each, and scores retrieval and clustering (the mean of three k-means)."""

    def __init__(self, split: LabeledImages, *, cache: Activations | None, seed: int) -> None:
        self.split, self.cache, self.seed = split, cache, seed

    def __call__(self, embedder: Network, *, step: int) -> Scores:
        """The scores after a step, by name. Neighbors by cosine for unit embeddings, else Euclidean."""
        from facetric.evaluation import evaluate

        vectors = self.embed(embedder)
        metric: Literal["cosine", "euclidean"] = "cosine" if embedder.normalize else "euclidean"
        refuse_bad_embeddings(vectors, step, metric=metric)
        report = evaluate(
            vectors,
            self.split.labels,
            ks=KS,
            metric=metric,
            facility=False,
            n_restarts=_N_RESTARTS,
            seed=self.seed,
        )
        assert report.map_at_r is not None
        assert report.nmi is not None
        recall = {f"recall_at_{k}": value for k, value in report.recall_at_k.items()}
        return {**recall, "map_at_r": report.map_at_r, "nmi": report.nmi}

    def embed(self, embedder: Network) -> NDArray[np.float32]:
        """The embeddings (n, d); from the cached activations where the first part of the network is frozen."""
        return encode(embedder, self.split.images if self.cache is None else self.cache)


def check_validation(labels: NDArray[np.int64]) -> None:
    """Refuse validation images that cannot be scored, before anything is trained."""
    sizes = np.bincount(labels)
    n_images, n_classes = len(labels), int((sizes > 0).sum())
    if n_classes > 1 and sizes.max() == 1:
        raise ValueError(
            f"none of the {n_classes} validation classes has 2 images, so that nothing can be found again: hold out others with "
            "--set data.validation_seed=…, more with --set data.validation_fraction=…, or none with --set run.validate_every=0"
        )
    if n_classes < 2 or n_images <= max(KS):
        raise ValueError(
            f"validation scores Recall@{max(KS)} and needs {max(KS) + 1} images of 2 classes or more; there are {n_images} of "
            f"{n_classes}: raise --set data.validation_fraction=…, or turn validation off: --set run.validate_every=0"
        )


def check_metric(name: str) -> None:
    """Refuse a score that validation does not have."""
    if name not in SCORES:
        raise ValueError(f"run.best_metric must be one of {', '.join(SCORES)}; got {name!r}: choose one of these")
