"""`model.head_refit`: networks are validated and saved with a closed-form head on the features that training has made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from facetric.embedder import Network, encode
from facetric.embedder.activations import TrunkCache
from facetric.runs import DivergedError
from facetric.training.feed import LabeledImages
from facetric.training.health import CALMER


@dataclass(frozen=True, eq=False)
class HeadRefit:
    """Fits a whitened head to the central crops of the training images.

    With a `pretrained_fraction` f the weights of the backbone are (1 − f)·trained + f·pretrained before.
    """

    split: LabeledImages
    cache: TrunkCache | None
    pretrained: Mapping[str, Tensor]  # the backbone before training; empty where it does not train
    pretrained_fraction: float = 0.0

    def with_fraction(self, pretrained_fraction: float) -> Self:
        return replace(self, pretrained_fraction=pretrained_fraction)

    def __call__(self, embedder: Network) -> Network:
        """Another embedder; what it does not change it shares with this one."""
        if self.pretrained and self.pretrained_fraction:
            embedder = embedder.interpolated(self.pretrained, self.pretrained_fraction)
        images = self.split.images if self.cache is None else self.cache
        features = encode(embedder, images, what="features")
        try:
            return embedder.with_whitened_head(features, self.split.labels)
        except ValueError:  # that there are enough images was checked before training
            raise DivergedError(
                "no head can be fitted to the features of the training images, which are not finite, or the same for all images "
                f"of a class: {CALMER}"
            ) from None
