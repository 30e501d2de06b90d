"""Image to vector: networks, their weights, `load`, export and files of vectors."""

from typing import TYPE_CHECKING

from facetric.lazy import loaded_on_use

if TYPE_CHECKING:
    from facetric.embedder.build import build_network
    from facetric.embedder.checkpoint import load_network, save_network
    from facetric.embedder.embedder import Embedder
    from facetric.embedder.embedding import embed
    from facetric.embedder.embeddings import Embeddings
    from facetric.embedder.input_spec import InputSpec
    from facetric.embedder.loading import load
    from facetric.embedder.network import Network
    from facetric.embedder.onnx_engine import OnnxNetwork, read_network
    from facetric.embedder.onnx_export import Export, ExportError, exported_network, write_export
    from facetric.embedder.onnx_file import OnnxDescription, OnnxFileError
    from facetric.embedder.transformer import Embedding
    from facetric.embedder.vector_file import PhotoVectors, read_vectors, write_vectors
    from facetric.embedder.weights import WeightsError

__all__ = [
    "Embedder",
    "Embedding",
    "Embeddings",
    "Export",
    "ExportError",
    "InputSpec",
    "Network",
    "OnnxDescription",
    "OnnxFileError",
    "OnnxNetwork",
    "PhotoVectors",
    "WeightsError",
    "build_network",
    "embed",
    "exported_network",
    "load",
    "load_network",
    "read_network",
    "read_vectors",
    "save_network",
    "write_export",
    "write_vectors",
]

_HOMES = {
    "Network": "network",
    "Embedding": "transformer",
    "Embeddings": "embeddings",
    "Export": "onnx_export",
    "ExportError": "onnx_export",
    "InputSpec": "input_spec",
    "Embedder": "embedder",
    "OnnxDescription": "onnx_file",
    "OnnxFileError": "onnx_file",
    "OnnxNetwork": "onnx_engine",
    "PhotoVectors": "vector_file",
    "WeightsError": "weights",
    "build_network": "build",
    "embed": "embedding",
    "exported_network": "onnx_export",
    "load": "loading",
    "load_network": "checkpoint",
    "read_network": "onnx_engine",
    "read_vectors": "vector_file",
    "save_network": "checkpoint",
    "write_export": "onnx_export",
    "write_vectors": "vector_file",
}

__getattr__, __dir__ = loaded_on_use(__name__, _HOMES, __all__)
