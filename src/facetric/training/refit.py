"""`model.head_refit`: networks are validated and saved with a closed-form head on the features that training has made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from facetric.embedder import Network, encode
from facetric.images import ImageSource
from facetric.runs import DivergedError
from facetric.training.health import CALMER


@dataclass(frozen=True, eq=False)
class HeadRefit:
    """Fits a whitened head to the central crops of the training images.

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
