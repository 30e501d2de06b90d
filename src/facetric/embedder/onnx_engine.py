"""`OnnxNetwork`: an exported model in onnxruntime, on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from facetric.embedder.input_spec import InputSpec
from facetric.embedder.onnx_file import OnnxDescription, OnnxFileError, read_description
from facetric.embedder.onnx_graph import INPUT, OUTPUT
from facetric.images import CenterCrop, Preprocessing
from facetric.images.sources import made_ahead
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


class OnnxNetwork:
    """Pictures in, vectors out, as an `Network` does it; what `Embedder` asks of an embedder has the same names here."""

    def __init__(self, session: Any, description: OnnxDescription) -> None:
        self.session, self.description = session, description
        spec = description.input_spec
        side = description.size + 2 * description.pad
        self._crop = CenterCrop(Preprocessing(size=side, crop=spec.size, mean=spec.mean, std=spec.std, channels=spec.channels))

    @property
    def name(self) -> str:
        """The backbone."""
        return self.description.network

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return self.description.dimensions

    @property
    def normalize(self) -> bool:
        """Whether vectors have length one."""
        return self.description.unit_length

    @property
    def input_spec(self) -> InputSpec:
        return self.description.input_spec

    def vectors(self, pixels: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """The vectors of pictures (size, size, channels): one picture in a call, so that none depends on the others.

        torch's number of threads says how many are run side by side.
        """
        tasks = (partial(self.run, self.inputs([picture])) for picture in pixels)
        found = list(made_ahead(tasks, torch.get_num_threads()))
        return np.concatenate(found) if found else np.empty((0, self.dim), dtype=np.float32)

    def inputs(self, pixels: Sequence[NDArray[np.uint8]]) -> NDArray[Any]:
        """Pictures as the graph takes them."""
        pictures = np.stack(pixels)
        if self.description.kind == "uint8":
            return pictures
        pad = (self.description.pad, self.description.pad)
        return np.ascontiguousarray(self._crop(np.pad(pictures, ((0, 0), pad, pad, (0, 0)))))

    def run(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """One call of onnxruntime."""
        found: NDArray[np.float32] = self.session.run([OUTPUT], {INPUT: inputs})[0]
        return found
