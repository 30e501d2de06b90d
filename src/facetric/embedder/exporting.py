"""A model of `load` as an ONNX file, or in onnxruntime at once; the real pictures that it is checked on."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

import facetric
from facetric.embedder.onnx_export import Export, Source, check_place, write_export
from facetric.embedder.onnx_graph import InputKind
from facetric.embedder.samples import sample_pictures
from facetric.images.decoding import open_image, upright_rgb
from facetric.runs import SPLITS, Run, run_images

if TYPE_CHECKING:
    from facetric.embedder.embedder import Embedder

_log = logging.getLogger("facetric")
N_CHECKED = 64


def export_model(
    model: Embedder, source: Source, path: Path, photos: Sequence[Path | Image.Image] | None, *, kind: InputKind, overwrite: bool
) -> Export:
    """Write the file; checked on up to 64 of these photos, else of the run's own images, else of photos that come with Python."""
    if kind not in ("uint8", "float32"):
        raise ValueError(f"input must be uint8 or float32; got {kind!r}: choose one of these (--input uint8)")
    check_place(path, overwrite=overwrite)
    calibration = None if model.calibration is None else model.calibration.as_dict()
    source = replace(source, calibration=calibration, calibrated_on=model.calibrated_on)
    if photos is not None:
        pictures = [upright_rgb(x) if isinstance(x, Image.Image) else open_image(x) for x in _some(photos)]
    else:
        pictures = sample_pictures() if model.run is None else _run_pictures(Run(model.run))
    return write_export(source, path, pictures, kind=kind, overwrite=overwrite, made_by=f"facetric {facetric.__version__}")


def _run_pictures(run: Run) -> list[Image.Image]:
    """Images of the first split that has some; photos of the install where the data is gone."""
    reason: object = "it has none"
    for split in SPLITS:
        if run.manifest.count(split)[0] == 0:
            continue
        try:
            images = run_images(run, split)[0].images
            chosen = _some(images)
            return [open_image(x) if isinstance(x, str | Path) else Image.fromarray(np.asarray(x)) for x in chosen]
        except (ValueError, OSError) as error:
            reason = error
    _log.warning("the images of the run cannot be used to check the export, photos of the install are (%s)", reason)
    return sample_pictures()


def _some(items: Any) -> list[Any]:
    """Up to 64 of them, evenly spaced."""
    rows = np.unique(np.linspace(0, len(items) - 1, min(len(items), N_CHECKED)).astype(int)) if len(items) else ()
    return [items[int(row)] for row in rows]
