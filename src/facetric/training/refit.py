"""`model.head_refit`: networks are validated and saved with a closed-form head on the features that training has made."""

from __future__ import annotations

from facetric.data import ImageFormat
from facetric.models import Embedder
from facetric.models.trunk_cache import TrunkCache, extract_features
from facetric.training.feed import LabeledImages


class HeadRefit:
    """Fits a whitened head to the training images: their central crops, or the first cached view of each."""

    def __init__(self, split: LabeledImages, *, cache: TrunkCache | None, form: ImageFormat) -> None:
        self.split, self.cache, self.form = split, cache, form

    def __call__(self, embedder: Embedder) -> Embedder:
        """The embedder with another head; it shares the backbone."""
        images = self.split.images if self.cache is None else self.cache
        features = extract_features(embedder, images, form=self.form, on_progress=lambda done, total: None)
        return embedder.with_whitened_head(features, self.split.labels)
