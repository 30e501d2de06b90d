"""Scores on held-out classes while a run trains, by the code that evaluates a finished run; `model.head_refit` before that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from facetric.embedder import Network, encode
from facetric.evaluation import evaluate
from facetric.images import ImageSource
from facetric.runs import DivergedError
from facetric.training.health import CALMER, refuse_bad_embeddings

Scores = dict[str, float]

KS = (1, 2, 4, 8)
SCORES = (*(f"recall_at_{k}" for k in KS), "map_at_r", "nmi")
_N_RESTARTS = 3  # k-means clusterings: the NMI of one is too noisy to choose by


class Validator:
    """Embeds the held-out images, one center crop each, and scores retrieval and clustering (the mean of three k-means)."""

    def __init__(self, images: ImageSource, labels: NDArray[np.int64], *, seed: int) -> None:
        self.images, self.labels, self.seed = images, labels, seed  # images, or their activations behind the frozen part

    def __call__(self, embedder: Network, *, step: int) -> Scores:
        """The scores after a step, by name. Neighbors by cosine for unit embeddings, else Euclidean."""
        vectors = self.embed(embedder)
        metric: Literal["cosine", "euclidean"] = "cosine" if embedder.normalize else "euclidean"
        refuse_bad_embeddings(vectors, step, metric=metric)
        report = evaluate(
            vectors,
            self.labels,
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
        """The embeddings (n, d) of the held-out images."""
        return encode(embedder, self.images)


@dataclass(frozen=True, eq=False)
class HeadRefit:
    """`model.head_refit`: networks are validated and saved with a closed-form head on the features that training has made.

    It is fitted to the central crops of the training images.

    With a `pretrained_fraction` f the weights of the backbone are (1 − f)·trained + f·pretrained before.
    """

    images: ImageSource  # or their activations
    labels: NDArray[np.int64]
    pretrained: Mapping[str, Tensor]  # the backbone before training; empty where it does not train
    pretrained_fraction: float = 0.0

    def with_fraction(self, pretrained_fraction: float) -> Self:
        return replace(self, pretrained_fraction=pretrained_fraction)

    def __call__(self, embedder: Network) -> Network:
        """Another embedder; what it does not change it shares with this one."""
        if self.pretrained and self.pretrained_fraction:
            embedder = embedder.interpolated(self.pretrained, self.pretrained_fraction)
        features = encode(embedder, self.images, what="features")
        try:
            return embedder.with_whitened_head(features, self.labels)
        except ValueError:  # that there are enough images was checked before training
            raise DivergedError(
                "no head can be fitted to the features of the training images, which are not finite, or the same for all images "
                f"of a class: {CALMER}"
            ) from None


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
