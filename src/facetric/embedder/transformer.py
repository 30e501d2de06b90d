"""`Embedding`: photos to vectors as a step of a scikit-learn pipeline."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin  # type: ignore[import-untyped]

from facetric.embedder.embedder import Embedder, ImageLike, load


class Embedding(TransformerMixin, BaseEstimator):
    """Photos → vectors, by a network or the model of a run folder or, without one, by the packaged network.

    There is nothing to fit: `transform` works at once. It takes what `Embedder.encode` takes, so that
    `make_pipeline(Embedding("runs/photos"), FacilityLocation(n_clusters=8)).fit_predict("new photos")` clusters a folder.

    Args:
        run: what `load` takes: a network such as "lite1", a run folder, a file; the packaged network when it is left out.
        checkpoint: "best" (last where there is no best) or "last".
        device: "auto", "cpu", "cuda" or "mps".
    """

    def __init__(self, run: str | None = None, *, checkpoint: str = "best", device: str = "auto") -> None:
        self.run = run
        self.checkpoint = checkpoint
        self.device = device

    def fit(self, X: ImageLike, y: Any = None) -> Self:
        """Load the model, so that a wrong path is found now."""
        self._model()
        return self

    def transform(self, X: ImageLike) -> NDArray[np.float32]:
        """The vectors (n, dim) of photos."""
        return self._model().encode(X)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """embedding0, embedding1, …"""
        return np.array([f"embedding{i}" for i in range(self._model().dim)], dtype=object)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_loaded"}

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        return tags

    def _model(self) -> Embedder:
        """The model, loaded once for these parameters."""
        wanted = (self.run, self.checkpoint, self.device)
        kept = getattr(self, "_loaded", None)
        if kept is None or kept[0] != wanted:
            kept = self._loaded = (wanted, load(self.run, checkpoint=self.checkpoint, device=self.device))
        model: Embedder = kept[1]
        return model
