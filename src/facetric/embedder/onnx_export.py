"""`write_export`: the model as an ONNX file that was loaded again and compared with torch before it is put in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facetric.embedder.encode import encode
from facetric.embedder.network import Network
from facetric.embedder.onnx_engine import OnnxNetwork, onnx_session, require_onnxruntime
from facetric.embedder.onnx_file import OnnxDescription, with_description
from facetric.embedder.onnx_graph import InputKind, PictureGraph, onnx_graph
from facetric.files import write_atomically
from facetric.images import Files
from facetric.text import printable

TOLERANCE = 1e-4  # of the distance between two vectors of a picture, relative to their length; rounding makes about 1e-6
BATCH = 32


class ExportError(RuntimeError):
    """The exported graph does not give the vectors of the model, or cannot be made; nothing was written."""


@dataclass(frozen=True)
class Export:
    """A file that was written."""

    path: Path
    n_bytes: int
    description: OnnxDescription


@dataclass(frozen=True, eq=False)
class Source:
    """What is exported: an embedder as it was loaded (not a copy for inference), and what is known of it."""

    network: Network
    fingerprint: str
    calibration: Mapping[str, Any] | None = None
    calibrated_on: str = ""


def write_export(
    source: Source, path: Path, pictures: Sequence[Any], *, kind: InputKind = "uint8", overwrite: bool = False, made_by: str
) -> Export:
    """Export to `path`, checked on these upright pictures. A difference beyond the tolerance is an ExportError.

    An existing file is replaced with `overwrite` only.
    """
    check_place(path, overwrite=overwrite)
    graph, network = _checked(source, pictures, kind)
    content = with_description(graph, network.description, made_by=made_by)
    write_atomically(path, content)
    return Export(path, len(content), network.description)


def check_place(path: Path, *, overwrite: bool) -> None:
    """Refuse a place that cannot be written to, before any work."""
    if path.suffix != ".onnx":
        raise ValueError(f"models are exported to .onnx files; got {printable(path)}: name it {printable(path.stem)}.onnx")
    if not path.parent.is_dir():
        raise ValueError(f"the folder {printable(path.parent)} does not exist: create it, or choose another place")
    if path.is_dir():
        raise ValueError(f"{printable(path)} is a folder: choose another name")
    if path.exists() and not overwrite:
        raise ValueError(f"{printable(path)} exists: choose another name, or pass --overwrite")


def exported_network(source: Source, pictures: Sequence[Any]) -> OnnxNetwork:
    """The same in memory, to run at once."""
    return _checked(source, pictures, "uint8")[1]


def _checked(source: Source, pictures: Sequence[Any], kind: InputKind) -> tuple[bytes, OnnxNetwork]:
    """The graph, and the network of it with a description that says how near it came to torch."""
    require_onnxruntime()
    description = _description(source, kind)
    graph = _graph(source, kind)
    try:
        network = OnnxNetwork(onnx_session(graph), description)
        found = difference(source, network, pictures)
    except Exception as error:  # of onnxruntime, which has no class for all of them
        raise ExportError(f"onnxruntime cannot run {source.network.name} ({_line(error)}): use torch") from error
    if not found <= TOLERANCE:
        raise ExportError(
            f"onnxruntime and torch differ by {found:.1e} for {len(pictures)} pictures, more than {TOLERANCE:.0e}: nothing was "
            "written; use torch for this network, or try other versions of onnxruntime and torch"
        )
    network.description = replace(description, n_checked=len(pictures), difference=found)
    return graph, network


def difference(source: Source, network: OnnxNetwork, pictures: Sequence[Any]) -> float:
    """The largest distance of a picture's two vectors, relative to their length; in batches and, for a few, one by one."""
    images = Files(pictures)
    expected = encode(source.network, images)
    together = encode(network, images, batch_size=BATCH)
    alone = encode(network, images.take(range(min(4, len(images)))), batch_size=1)
    return max(_largest(expected, together), _largest(expected[:4], alone))


def _largest(expected: NDArray[np.float32], found: NDArray[np.float32]) -> float:
    assert found.shape == expected.shape
    lengths = np.maximum(np.linalg.norm(expected, axis=1), np.finfo(np.float32).tiny)
    return float((np.linalg.norm(expected - found, axis=1) / lengths).max())


def _description(source: Source, kind: InputKind) -> OnnxDescription:
    embedder = source.network
    return OnnxDescription(
        fingerprint=source.fingerprint,
        network=embedder.name,
        dim=embedder.dim,
        unit_length=embedder.normalize,
        kind=kind,
        preprocessing=embedder.preprocessing,
        calibration=source.calibration,
        calibrated_on=source.calibrated_on,
        n_checked=0,
        difference=0.0,
    )


def _graph(source: Source, kind: InputKind) -> bytes:
    try:
        return onnx_graph(PictureGraph(source.network, kind=kind))
    except ModuleNotFoundError as error:
        raise ValueError(f"ONNX needs {error.name}, which is not installed: pip install 'facetric[onnx]'") from None
    except Exception as error:  # of torch's exporter, of many kinds
        raise ExportError(f"torch cannot export {source.network.name} to ONNX ({_line(error)}): use torch") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
