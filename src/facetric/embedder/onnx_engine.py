"""`OnnxNetwork`: an exported model in onnxruntime, on the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facetric.embedder.onnx_file import OnnxDescription, OnnxFileError, read_description
from facetric.embedder.onnx_graph import INPUT, OUTPUT
from facetric.images import CenterCrop, Crop, Preprocessing
from facetric.text import printable


def read_network(path: Path) -> OnnxNetwork:
    """The network in a file that `facetric export` wrote; an OnnxFileError for any other."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise OnnxFileError(f"{printable(path)} does not exist: pass a file that `facetric export` wrote") from None
    graph, description = read_description(path, content)
    return OnnxNetwork(onnx_session(graph, path), description)


def onnx_session(content: bytes, path: Path | None = None) -> Any:
    """onnxruntime, with one thread for each call: pictures are run side by side instead."""
    runtime = require_onnxruntime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors
    try:
        return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a class for each reason, and none for all
        if path is None:
            raise
        reason = " ".join(str(error).split())[:200]
        raise OnnxFileError(
            f"{printable(path)} cannot be read by onnxruntime ({reason}): pass a file that `facetric export` wrote"
        ) from error


def require_onnxruntime() -> Any:
    """The module, or a ValueError with the way to install it."""
    try:
        import onnxruntime
    except ImportError:
        raise ValueError("ONNX needs onnxruntime, which is not installed: pip install 'facetric[onnx]'") from None
    return onnxruntime


@dataclass(frozen=True)
class _WholeImages:
    """A crop that leaves images as they are: padding, crop and normalization are in the graph."""

    preprocessing: Preprocessing
    n_draws: ClassVar[int] = 0

    def __call__(self, images: NDArray[np.uint8], rng: np.random.Generator | None = None) -> NDArray[Any]:
        return images

    def apply(
        self, images: NDArray[np.uint8], draws: NDArray[np.float64], *, rows: NDArray[np.int64] | None = None
    ) -> NDArray[Any]:
        return images if rows is None else images[rows]


class OnnxNetwork:
    """An exported network, with what `encode` and `Embedder` ask of a `Network`."""

    device: ClassVar[torch.device] = torch.device("cpu")

    def __init__(self, session: Any, description: OnnxDescription) -> None:
        self.session, self.description = session, description

    @property
    def name(self) -> str:
        """The backbone."""
        return self.description.network

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return self.description.dim

    n_features = dim

    @property
    def normalize(self) -> bool:
        """Whether vectors have length one."""
        return self.description.unit_length

    @property
    def preprocessing(self) -> Preprocessing:
        return self.description.preprocessing

    @property
    def crop(self) -> Crop:
        """What the graph takes of images."""
        return (_WholeImages if self.description.kind == "uint8" else CenterCrop)(self.preprocessing)

    def __call__(self, images: Tensor) -> Tensor:
        """One call of onnxruntime."""
        return torch.from_numpy(self.session.run([OUTPUT], {INPUT: np.ascontiguousarray(images.numpy())})[0])
