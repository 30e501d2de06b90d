"""`load`: a trained run, an exported file or the packaged network, as a model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from facetric.embedder.embedder import Embedder
from facetric.embedder.encode import usable_device
from facetric.embedder.encoder import PictureFormat
from facetric.embedder.saved import saved_network
from facetric.runs import RunFolderError

Engine = Literal["torch", "onnx"]


def load(
    run: str | os.PathLike[str] | None = None,
    *,
    checkpoint: str = "best",
    device: str = "auto",
    engine: Engine | None = None,
) -> Embedder:
    """The model of a run folder (its best checkpoint, or the last where there is no best) or of a file that `facetric export`
    wrote, ready to use.

    Without a run: EfficientNet-Lite0 as it comes with the install, trained on ImageNet only. `device` is auto, cpu, cuda or mps.
    With engine "onnx" the network is exported in memory, compared with torch and run by onnxruntime on the CPU: the same vectors
    up to rounding, and the same fingerprint. An exported file is always run by onnxruntime.
    """
    if run is not None and not isinstance(run, str | os.PathLike):
        raise ValueError(f"load takes the path of a run folder, or nothing; got {type(run).__name__}: pass runs/photos, say")
    where = None if run is None else Path(run).expanduser()
    is_exported = where is not None and where.suffix == ".onnx" and not where.is_dir()
    _check_engine(engine, device, is_exported=is_exported)
    origin = (None if where is None else str(where.absolute()), checkpoint, device, engine)
    if where is not None and is_exported:
        from facetric.embedder import read_network

        network = read_network(where)
        return Embedder(network, PictureFormat(network.description.size), network.description.fingerprint, source=origin)
    place = usable_device(device)
    found = saved_network(where, checkpoint)
    if engine == "onnx":
        from facetric.embedder import exported_network
        from facetric.embedder.samples import sample_pictures

        network = exported_network(found, sample_pictures())
        return Embedder(network, PictureFormat(found.form.size), found.fingerprint, source=origin)
    embedder = found.network.to(place).for_inference()
    return Embedder(embedder, found.form, found.fingerprint, features=found.features, source=origin)


def _check_engine(engine: str | None, device: str, *, is_exported: bool) -> None:
    if engine not in (None, "torch", "onnx"):
        raise ValueError(f"engine must be torch or onnx; got {engine!r}: choose one of these (--engine onnx)")
    if is_exported and engine == "torch":
        raise ValueError("an exported file is run by onnxruntime, not by torch: leave --engine out, or pass the run folder")
    if (is_exported or engine == "onnx") and device not in ("auto", "cpu"):
        raise ValueError(f"onnxruntime is used on the CPU only; got device {device!r}: leave --device out, or use torch")


def restored(source: tuple[Any, ...], fingerprint: str) -> Embedder:
    """A model from its pickle: the arguments of `load`, and the fingerprint that it had."""
    run, checkpoint, device, engine = source
    model = load(run, checkpoint=checkpoint, device=device, engine=engine)
    if model.fingerprint != fingerprint:
        raise RunFolderError(f"{run or 'the packaged network'} is no longer the model that it was: load it again")
    return model
