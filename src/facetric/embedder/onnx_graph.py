"""The graph of an exported model: pictures (n, size, size, channels) in uint8, or normalized crops, to vectors."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from facetric.embedder.network import Network
from facetric.embedder.split import feature_maps

InputKind = Literal["uint8", "float32"]
INPUT, OUTPUT = "pictures", "vectors"
_OPSET = 18


class PictureGraph(nn.Module):
    """The embedder with its preprocessing. With "float32" it takes what the embedder takes: normalized crops, channels first."""

    mean: Tensor
    std: Tensor

    def __init__(self, embedder: Network, *, kind: InputKind) -> None:
        super().__init__()
        self.kind, self.form = kind, embedder.preprocessing
        self.normalize, self.normalize_features = embedder.normalize, embedder.normalize_features
        self.backbone = copy.deepcopy(embedder.backbone).to("cpu").to(memory_format=torch.contiguous_format)
        self.head = copy.deepcopy(embedder.head).to("cpu")
        self.register_buffer("mean", torch.tensor(self.form.mean))
        self.register_buffer("std", torch.tensor(self.form.std))
        self.eval()

    def forward(self, pictures: Tensor) -> Tensor:
        pool = cast(Callable[..., Tensor], self.backbone.forward_head)
        images = self._crops(pictures) if self.kind == "uint8" else pictures
        features = pool(feature_maps(self.backbone, images), pre_logits=True)
        vectors: Tensor = self.head(nn.functional.normalize(features, dim=1) if self.normalize_features else features)
        return nn.functional.normalize(vectors, dim=1) if self.normalize else vectors

    def example(self) -> Tensor:
        """Two pictures of noise."""
        form, noise = self.form, torch.Generator().manual_seed(0)
        if self.kind == "float32":
            return torch.randn(2, form.channels, form.crop, form.crop, generator=noise)
        shape = (2, form.size, form.size, form.channels)
        return torch.randint(0, 256, shape, dtype=torch.uint8, generator=noise)

    def _crops(self, pictures: Tensor) -> Tensor:
        """Padded, cropped at the center and normalized, with the rounding of `Preprocessing.values`."""
        pad, crop = self.form.pad, self.form.crop
        if pad:
            pictures = nn.functional.pad(pictures.float(), (0, 0, pad, pad, pad, pad))
        start = (self.form.size + 2 * pad - crop) // 2
        cropped = pictures[:, start : start + crop, start : start + crop].float()
        return ((cropped / 255 - self.mean) / self.std).permute(0, 3, 1, 2)


def onnx_graph(graph: PictureGraph) -> bytes:
    """The graph as an ONNX model, with any number of pictures."""
    with torch.no_grad(), _quiet():
        program: Any = torch.onnx.export(
            graph,
            (graph.example(),),
            dynamo=True,
            verbose=False,
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes=({0: torch.export.Dim("n")},),
            opset_version=_OPSET,
        )
    proto = program.model_proto
    proto.producer_name, proto.producer_version = "facetric", ""
    for holder in (*proto.graph.node, *proto.graph.value_info, *proto.graph.initializer, *proto.graph.input, *proto.graph.output):
        if holder.metadata_props:  # names of source files and lines on the exporting machine
            del holder.metadata_props[:]
        if holder.doc_string:
            holder.doc_string = ""
    content: bytes = proto.SerializeToString()
    return content


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks on its own workings."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
