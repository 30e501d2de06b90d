"""A model as an ONNX file, and onnxruntime to run it; `Model.export` and `load("model.onnx")` are the doors for users."""

from typing import TYPE_CHECKING

from facetric.lazy import loaded_on_use

if TYPE_CHECKING:
    from facetric.export.network import OnnxNetwork, read_network
    from facetric.export.onnx_file import OnnxDescription, OnnxFileError
    from facetric.export.writing import Export, ExportError, exported_network, write_export

__all__ = [
    "Export",
    "ExportError",
    "OnnxDescription",
    "OnnxFileError",
    "OnnxNetwork",
    "exported_network",
    "read_network",
    "write_export",
]

_HOMES = {
    "Export": "writing",
    "ExportError": "writing",
    "OnnxDescription": "onnx_file",
    "OnnxFileError": "onnx_file",
    "OnnxNetwork": "network",
    "exported_network": "writing",
    "read_network": "network",
    "write_export": "writing",
}

__getattr__, __dir__ = loaded_on_use(__name__, _HOMES, __all__)
