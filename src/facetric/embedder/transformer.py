"""`Embedding`: images to vectors as a step of a scikit-learn pipeline."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin  # type: ignore[import-untyped]

from facetric.embedder.embedder import Embedder, ImageLike
from facetric.embedder.loading import load


class Embedding(TransformerMixin, BaseEstimator):
    """Images → vectors, by the network of a run or, without one, by the packaged network.

    There is nothing to fit: `transform` works at once, and takes what `Embedder.encode` takes.

    Parameters
    ----------
    run : str, default=None
        A run folder, a checkpoint (.safetensors) or an exported file (.onnx); the packaged network when it is left out.
    checkpoint : {"best", "last"}, default="best"
        Of a run folder; the last where there is no best.
    device : {"auto", "cpu", "cuda", "mps"}, default="auto"
        Where the network runs.

    See Also
    --------
    facetric.load : the embedder behind it.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from facetric import AverageLinkage
    >>> pipeline = make_pipeline(Embedding(), AverageLinkage(0.6))
    >>> pipeline.fit_predict([np.zeros((40, 40), np.uint8), np.eye(40, dtype=np.uint8) * 255, np.ones((50, 40), np.uint8)])
    array([0, 1, 0])
    """

    def __init__(self, run: str | None = None, *, checkpoint: str = "best", device: str = "auto") -> None:
        self.run = run
        self.checkpoint = checkpoint
        self.device = device

    def fit(self, X: ImageLike, y: Any = None) -> Self:
        """Load the network, so that a wrong path is found now."""
        self._embedder()
        return self

    def transform(self, X: ImageLike) -> NDArray[np.float32]:
        """The vectors (n, dim) of images."""
        return self._embedder().encode(X)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """embedding0, embedding1, …"""
        return np.array([f"embedding{i}" for i in range(self._embedder().dim)], dtype=object)

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

    def _embedder(self) -> Embedder:
        """Loaded once for these parameters."""
        wanted = (self.run, self.checkpoint, self.device)
        kept = getattr(self, "_loaded", None)
        if kept is None or kept[0] != wanted:
            kept = self._loaded = (wanted, load(self.run, checkpoint=self.checkpoint, device=self.device))
        embedder: Embedder = kept[1]
        return embedder
