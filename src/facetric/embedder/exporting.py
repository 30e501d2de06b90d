"""A model of `load` as an ONNX file, or in onnxruntime at once; the real pictures that it is checked on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

import facetric
from facetric.embedder.network import Network
from facetric.embedder.onnx_engine import OnnxNetwork
from facetric.embedder.onnx_export import Export, Source, check_place, exported_network, write_export
from facetric.embedder.onnx_graph import InputKind
from facetric.embedder.samples import sample_pictures
from facetric.images import open_image, upright_rgb

if TYPE_CHECKING:
    from facetric.embedder.embedder import Embedder

N_CHECKED = 64


def export_model(
    model: Embedder, path: Path, photos: Sequence[Path | Image.Image] | None, *, kind: InputKind, overwrite: bool
) -> Export:
    """Write the file; checked on up to 64 of these photos, else on photos that come with the install."""
    if kind not in ("uint8", "float32"):
        raise ValueError(f"input must be uint8 or float32; got {kind!r}: choose one of these (--input uint8)")
    check_place(path, overwrite=overwrite)
    pictures: Sequence[Any] = sample_pictures()
    if photos is not None:
        pictures = [upright_rgb(x) if isinstance(x, Image.Image) else open_image(x) for x in _some(photos)]
    return write_export(
        _source(model), path, pictures, kind=kind, overwrite=overwrite, made_by=f"facetric {facetric.__version__}"
    )


def exported_in_memory(model: Embedder) -> OnnxNetwork:
    """The same in memory, to run at once."""
    return exported_network(_source(model), sample_pictures())


def _source(model: Embedder) -> Source:
    assert isinstance(model.network, Network)
    calibration = None if model.calibration is None else model.calibration.as_dict()
    return Source(model.network, model.fingerprint, calibration, model.calibrated_on)


def _some(items: Any) -> list[Any]:
    """Up to 64 of them, evenly spaced."""
    rows = np.unique(np.linspace(0, len(items) - 1, min(len(items), N_CHECKED)).astype(int)) if len(items) else ()
    return [items[int(row)] for row in rows]
