"""Use a trained model, or the packaged network: `load`, `Model` and the scikit-learn transformer `Embedding`."""

from typing import TYPE_CHECKING

from facetric.lazy import loaded_on_use

if TYPE_CHECKING:
    from facetric.inference.loading import load
    from facetric.inference.model import Model
    from facetric.inference.transformer import Embedding

__all__ = ["Embedding", "Model", "load"]

_HOMES = {"Embedding": "transformer", "Model": "model", "load": "loading"}

__getattr__, __dir__ = loaded_on_use(__name__, _HOMES, __all__)
