"""Backbone + pooling + linear head, and where the weights come from."""

from facetric.models.build import build_embedder
from facetric.models.embedder import Embedder
from facetric.models.input_spec import InputSpec
from facetric.models.storage import load_embedder, save_embedder
from facetric.models.weights import WeightsError

__all__ = ["Embedder", "InputSpec", "WeightsError", "build_embedder", "load_embedder", "save_embedder"]
