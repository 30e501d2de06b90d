"""A network as an ONNX file that was run by onnxruntime and compared with torch before it is put in place.

`write_export` writes the file of `facetric export`, `kept_engine` the one that embeds photos on a CPU.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from facetric.embedder.encode import encode
from facetric.embedder.network import Network
from facetric.embedder.onnx_engine import (
    FORMAT,
    INPUT,
    OUTPUT,
    OnnxDescription,
    OnnxEngine,
    OnnxFileError,
    Takes,
    onnx_session,
    read_engine,
)
from facetric.embedder.split import feature_maps
from facetric.embedder.weights import quiet
from facetric.files import checksummed, write_atomically
from facetric.images import Files, ImageSource, cache_folder
from facetric.text import printable

MANY = 2000  # images that are worth an export, which takes seconds and is kept
TOLERANCE = 1e-4  # of the distance between two vectors of an image, relative to their length; rounding makes about 1e-6
_OPSET = 18
_log = logging.getLogger("facetric")


class ExportError(RuntimeError):
    """The exported graph does not give the vectors of the network, or cannot be made; nothing was written."""


def kept_engine(network: Network, fingerprint: str, *, export: bool) -> OnnxEngine | None:
    """onnxruntime with the export of this network that is kept in the cache folder. None where torch has to do it.

    Where none is kept, or a damaged one, it is made if `export` is true.
    """
    path = cache_folder() / f"{re.sub(r'[^A-Za-z0-9_.]', '_', network.name)}-{fingerprint[:16]}.onnx"
    try:
        if not export and not path.is_file():
            return None
        with suppress(OnnxFileError):  # missing, damaged, or of another version
            engine = read_engine(path)
            if engine.description.fingerprint == fingerprint:
                with suppress(OSError):
                    path.touch()  # `facetric cache` says when it was last used
                return engine
        path.parent.mkdir(parents=True, exist_ok=True)
        write_export(network, path, fingerprint, Files(sample_images(4)), takes="crops")
        return read_engine(path)
    except (OSError, ImportError, ValueError, ExportError) as error:
        _log.warning("torch is used, onnxruntime would be faster: %s", error)
        return None


def write_export(
    network: Network,
    path: Path,
    fingerprint: str,
    images: ImageSource,
    *,
    takes: Takes = "images",
    pair_model: Mapping[str, Any] | None = None,
    fitted_to: str = "",
) -> OnnxDescription:
    """Write the file, compared with torch on up to 64 of these images. A difference beyond the tolerance is an ExportError."""
    checked = images.take(np.unique(np.linspace(0, len(images) - 1, min(len(images), 64)).astype(int)))
    about = OnnxDescription(
        fingerprint=fingerprint,
        network=network.name,
        dim=network.dim,
        normalize=network.normalize,
        preprocessing=network.preprocessing,
        takes=takes,
        pair_model=pair_model,
        fitted_to=fitted_to,
    )
    try:
        graph = _graph(network, takes)
        engine = OnnxEngine(onnx_session(graph), about)
        found = difference(network, engine, checked)
    except ModuleNotFoundError as error:
        raise ValueError(f"ONNX needs {error.name}, which is not installed: pip install 'facetric[photos]'") from None
    except Exception as error:  # of torch's exporter or of onnxruntime, of many kinds
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ExportError(f"{network.name} cannot be exported to ONNX ({reason}): use torch") from error
    if not found <= TOLERANCE:
        raise ExportError(
            f"onnxruntime and torch differ by {found:.1e} for {len(checked)} images, more than {TOLERANCE:.0e}: nothing was "
            "written; use torch for this network, or try other versions of onnxruntime and torch"
        )
    about = replace(about, n_checked=len(checked), difference=found)
    write_atomically(path, graph + _record(graph, about))
    return about


def check_place(path: Path, *, overwrite: bool) -> None:
    """Refuse a place that cannot be written to, before any work."""
    if path.suffix != ".onnx":
        raise ValueError(f"models are exported to .onnx files; got {printable(path)}: name it {printable(path.stem)}.onnx")
    if not path.parent.is_dir():
        raise ValueError(f"the folder {printable(path.parent)} does not exist: create it, or choose another place")
    if path.is_dir():
        raise ValueError(f"{printable(path)} is a folder: choose another name")
    if path.exists() and not overwrite:
        raise ValueError(f"{printable(path)} exists: choose another name, or pass overwrite=True")


def difference(network: Network, engine: OnnxEngine, images: ImageSource) -> float:
    """The largest distance of an image's two vectors, relative to their length; in batches and, for a few, one by one."""
    expected = encode(network, images)
    lengths = np.maximum(np.linalg.norm(expected, axis=1), np.finfo(np.float32).tiny)
    some = images.take(np.arange(min(4, len(images))))
    runs = encode(engine, images, batch_size=32), encode(engine, some, batch_size=1)
    return max(float((np.linalg.norm(expected[: len(run)] - run, axis=1) / lengths[: len(run)]).max()) for run in runs)


def sample_images(n: int = 16) -> list[Image.Image]:
    """n different parts, of 160 to 420 pixels, of scikit-learn's photos of a temple and of a flower in turn."""
    from sklearn.datasets import load_sample_images  # type: ignore[import-untyped]

    photos = [Image.fromarray(photo) for photo in load_sample_images().images]
    rng = np.random.default_rng(0)
    parts = []
    for number in range(n):
        photo = photos[number % len(photos)]
        width, height = (int(side) for side in rng.integers(160, 421, 2))
        left, top = int(rng.integers(0, photo.width - width + 1)), int(rng.integers(0, photo.height - height + 1))
        parts.append(photo.crop((left, top, left + width, top + height)))
    return parts


class _Graph(nn.Module):
    """The network; where it takes images, behind its preprocessing, whose numbers are rounded as `Preprocessing.values` are."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: Network, takes: Takes) -> None:
        super().__init__()
        self.takes, self.form = takes, network.preprocessing
        self.normalize, self.normalize_features = network.normalize, network.normalize_features
        self.backbone = copy.deepcopy(network.backbone).to("cpu").to(memory_format=torch.contiguous_format)
        self.head = copy.deepcopy(network.head).to("cpu")
        self.register_buffer("mean", torch.tensor(self.form.mean))
        self.register_buffer("std", torch.tensor(self.form.std))
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        pool = cast(Callable[..., Tensor], self.backbone.forward_head)
        features = pool(feature_maps(self.backbone, images if self.takes == "crops" else self.crops(images)), pre_logits=True)
        vectors: Tensor = self.head(nn.functional.normalize(features, dim=1) if self.normalize_features else features)
        return nn.functional.normalize(vectors, dim=1) if self.normalize else vectors

    def crops(self, images: Tensor) -> Tensor:
        """uint8 (n, size, size, channels) → padded, cropped at the center and normalized."""
        pad, crop = self.form.pad, self.form.crop
        if pad:
            images = nn.functional.pad(images.float(), (0, 0, pad, pad, pad, pad))
        start = (self.form.size + 2 * pad - crop) // 2
        cropped = images[:, start : start + crop, start : start + crop].float()
        return ((cropped / 255 - self.mean) / self.std).permute(0, 3, 1, 2)


def _graph(network: Network, takes: Takes) -> bytes:
    """The network as an ONNX model, for any number of images."""
    graph, form = _Graph(network, takes), network.preprocessing
    two_images = torch.zeros(2, form.size, form.size, form.channels, dtype=torch.uint8)
    if takes == "crops":
        two_images = torch.zeros(2, form.channels, form.crop, form.crop)
    with torch.no_grad(), quiet("torch.onnx", "onnxscript", "onnx_ir"):
        program: Any = torch.onnx.export(
            graph,
            (two_images,),
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


def _record(graph: bytes, about: OnnxDescription) -> bytes:
    """The end of the file: a model that holds nothing but the description."""
    from onnx import ModelProto

    record = {
        "format": FORMAT,
        "made_by": f"facetric {version('facetric')}",
        "input": about.words(),
        **asdict(about),
        "graph_bytes": len(graph),
        "graph_sha256": hashlib.sha256(graph).hexdigest(),
    }
    end = ModelProto()
    end.metadata_props.add(key="facetric", value=checksummed(record).decode())
    found: bytes = end.SerializeToString()
    return found
