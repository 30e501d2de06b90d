"""Image to vector: networks, their weights, `load`, export and files of vectors."""

from facetric.embedder.activations import cached_activations
from facetric.embedder.backbones import build_network
from facetric.embedder.checkpoint import network_fingerprint, save_network
from facetric.embedder.elsewhere import Elsewhere, given_vectors, read_vectors
from facetric.embedder.embedder import Embedder, ImageLike, load
from facetric.embedder.encode import encode
from facetric.embedder.facts import network_facts
from facetric.embedder.heads import check_fit, closed_form_vectors
from facetric.embedder.network import WHOLE, Network
from facetric.embedder.network_speed import images_per_second
from facetric.embedder.networks import NETWORKS, NamedNetwork, is_network_name, named_network, networks_here, unknown_network
from facetric.embedder.onnx_export import ExportError
from facetric.embedder.shared import HUB
from facetric.embedder.transformer import Embedding
from facetric.embedder.vectors_file import Vectors
from facetric.embedder.weights import WeightsError

__all__ = [
    "HUB",
    "NETWORKS",
    "WHOLE",
    "Elsewhere",
    "Embedder",
    "Embedding",
    "ExportError",
    "ImageLike",
    "NamedNetwork",
    "Network",
    "Vectors",
    "WeightsError",
    "build_network",
    "cached_activations",
    "check_fit",
    "closed_form_vectors",
    "encode",
    "given_vectors",
    "images_per_second",
    "is_network_name",
    "load",
    "named_network",
    "network_facts",
    "network_fingerprint",
    "networks_here",
    "read_vectors",
    "save_network",
    "unknown_network",
]
