"""onnxruntime: files that `onnx_export.py` wrote, read and run on the CPU.

What a file says of itself is a record in the metadata of the ONNX model, under the key "facetric", as JSON. A serialized ONNX
model followed by a second one that holds nothing but metadata is, by the rules of protocol buffers, the model with that metadata.
So the record ends the file and holds checksums of the model before it and of itself: a file that was quantized, optimized
or damaged after the export is noticed before onnxruntime sees it, and the fingerprint in it is not taken for that of the network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facetric.files import read_checksummed
from facetric.images import CenterCrop, Crop, Preprocessing
from facetric.text import printable

FORMAT = 3
INPUT, OUTPUT = "images", "vectors"
Takes = Literal["images", "crops"]
_RECORD = b'{\n "sha256"'  # how `checksummed` begins
_BROKEN = "export it again with `facetric export`"


class OnnxFileError(ValueError):
    """A file that is missing, damaged, changed or not written by `facetric export`."""


@dataclass(frozen=True, kw_only=True)
class OnnxDescription:
    """Which network a file holds, what it takes and what to expect of its vectors. No class, image or path is named."""

    fingerprint: str  # equal to that of the network, whose vectors these are
    network: str  # the backbone
    dim: int
    normalize: bool  # whether vectors have length one
    preprocessing: Preprocessing
    takes: Takes  # images: all of the preprocessing but its fit and resizing is in the graph
    pair_model: Mapping[str, Any] | None  # `PairModel.as_dict`; None for the one that comes with the install
    fitted_to: str
    n_checked: int = 0  # images on which the file was compared with torch
    difference: float = 0.0  # the largest found: the distance of two vectors of an image, relative to their length

    def words(self) -> str:
        """What an exported file takes, in a sentence."""
        form = self.preprocessing
        color = "RGB" if form.channels == 3 else "gray"
        fitted = f"an upright {color} image, {form.fitted} to {form.size} × {form.size} (bilinear, antialiased)"
        return f"uint8 (n, {form.size}, {form.size}, {form.channels}): {fitted}"


@dataclass(frozen=True)
class WholeImages(Crop):
    """A crop that leaves images as they are."""

    def apply(
        self, images: NDArray[np.uint8], draws: NDArray[np.float64] | None = None, *, rows: NDArray[np.int64] | None = None
    ) -> NDArray[Any]:
        return images if rows is None else images[rows]


class OnnxEngine:
    """An exported network, with what `encode` and `Embedder` ask of a `Network`."""

    device: ClassVar[torch.device] = torch.device("cpu")

    def __init__(self, session: Any, description: OnnxDescription) -> None:
        self._session, self.description = session, description
        self.name, self.normalize = description.network, description.normalize
        self.dim = self.n_features = description.dim
        self.preprocessing = description.preprocessing
        self.crop: Crop = (WholeImages if description.takes == "images" else CenterCrop)(self.preprocessing)

    def __call__(self, inputs: Tensor) -> Tensor:
        """What `crop` gave → vectors (m, dim), in the calling thread."""
        return torch.from_numpy(self._session.run([OUTPUT], {INPUT: np.ascontiguousarray(inputs.numpy())})[0])


def read_engine(path: Path) -> OnnxEngine:
    """The network in a file; an OnnxFileError that says what is wrong with any other."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise OnnxFileError(f"{printable(path)} does not exist: pass a file that `facetric export` wrote") from None
    start = content.rfind(_RECORD)
    if start < 0:
        raise OnnxFileError(
            f"{printable(path)} does not end with a record of facetric, it is of another program or cut off: {_BROKEN}"
        )
    try:
        record = read_checksummed(content[start:])
        if record.pop("format") != FORMAT:
            raise OnnxFileError(f"{printable(path)} was written by another version of facetric ({record['made_by']}): {_BROKEN}")
        graph = content[: record.pop("graph_bytes")]
        if hashlib.sha256(graph).hexdigest() != record.pop("graph_sha256"):
            raise ValueError("the checksum of its model is wrong")
        del record["made_by"], record["input"]
        description = OnnxDescription(**{**record, "preprocessing": Preprocessing(**record["preprocessing"])})
    except OnnxFileError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise OnnxFileError(
            f"{printable(path)} was changed after its export ({error}), its vectors may not be those of the model: {_BROKEN}"
        ) from error
    try:
        return OnnxEngine(onnx_session(graph), description)
    except ModuleNotFoundError:
        raise OnnxFileError(
            f"{printable(path)} needs onnxruntime, which is not installed: pip install 'facetric[photos]'"
        ) from None
    except Exception as error:  # onnxruntime has a class for each reason, and none for all
        reason = " ".join(str(error).split())[:200]
        raise OnnxFileError(f"{printable(path)} cannot be read by onnxruntime ({reason}): {_BROKEN}") from error


def onnx_session(graph: bytes) -> Any:
    """One thread for each call: images are run side by side instead."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
