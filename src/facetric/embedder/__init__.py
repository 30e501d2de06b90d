"""Image to vector: networks, their weights, `load`, export and files of vectors."""

from facetric.embedder.activations import Activations, cached_activations, cached_vectors
from facetric.embedder.backbones import build_network
from facetric.embedder.checkpoint import (
    load_network,
    network_fingerprint,
    save_calibration,
    save_network,
)
from facetric.embedder.embedder import Embedder
from facetric.embedder.encode import encode
from facetric.embedder.heads import FITTED_KINDS, ClosedForm, can_span, check_fit, closed_form_head
from facetric.embedder.loading import checkpoint_file, load
from facetric.embedder.network import WHOLE, Network
from facetric.embedder.onnx_export import ExportError
from facetric.embedder.transformer import Embedding
from facetric.embedder.vectors_file import Vectors, check_suffix, read_fingerprint
from facetric.embedder.weights import WeightsError, default_weights

__all__ = [
    "FITTED_KINDS",
    "WHOLE",
    "Activations",
    "ClosedForm",
    "Embedder",
    "Embedding",
    "ExportError",
    "Network",
    "Vectors",
    "WeightsError",
    "build_network",
    "cached_activations",
    "cached_vectors",
    "can_span",
    "check_fit",
    "check_suffix",
    "checkpoint_file",
    "closed_form_head",
    "default_weights",
    "encode",
    "load",
    "load_network",
    "network_fingerprint",
    "read_fingerprint",
    "save_calibration",
    "save_network",
]
