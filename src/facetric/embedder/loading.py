"""`load`: a run folder, a checkpoint, an exported file or the packaged network, as an `Embedder`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from facetric.embedder.backbones import build_network
from facetric.embedder.checkpoint import calibration_file, load_network, network_fingerprint, read_calibration
from facetric.embedder.embedder import Embedder
from facetric.embedder.encode import usable_device
from facetric.embedder.onnx_engine import read_engine

CHECKPOINTS = ("best", "last")
_PACKAGED = "tf_efficientnet_lite0"


def load(
    path: str | os.PathLike[str] | None = None,
    *,
    checkpoint: str = "best",
    device: str = "auto",
) -> Embedder:
    """The embedder of a run folder (its best checkpoint, or the last where there is no best), of a checkpoint such as
    birds.safetensors, or of a file that `facetric export` wrote.

    Without a path: EfficientNet-Lite0 as it comes with the install, trained on ImageNet only. `device` is auto, cpu, cuda or mps.
    """
    if path is not None and not isinstance(path, str | os.PathLike):
        raise ValueError(f"load takes the path of a run folder, or nothing; got {type(path).__name__}: pass runs/photos, say")
    where = None if path is None else Path(path).expanduser()
    is_exported = where is not None and where.suffix == ".onnx" and not where.is_dir()
    origin = (None if where is None else str(where.absolute()), checkpoint, device)
    if where is not None and is_exported:
        if device not in ("auto", "cpu"):
            raise ValueError(
                f"an exported file is run on the CPU; got device {device!r}: leave --device out, or pass the run folder"
            )
        return Embedder(read_engine(where), origin=origin)
    place = usable_device(device)
    if where is None:
        network = build_network(_PACKAGED, dim=None, weights="packaged").eval()
        kept = Path(__file__).with_name("packaged_calibration.json")
    else:
        weights = checkpoint_file(where, checkpoint) if where.is_dir() or not where.suffix else where
        network, kept = load_network(weights), calibration_file(weights)
    fingerprint = network_fingerprint(network)
    calibration, classes = read_calibration(kept, fingerprint)
    return Embedder(network.to(place), fingerprint=fingerprint, calibration=calibration, calibrated_on=classes, origin=origin)


def checkpoint_file(run: Path, wanted: str = "best") -> Path:
    """The file of a run's best network (the last one where there is no best), or of the last one."""
    if wanted not in CHECKPOINTS:
        raise ValueError(f"checkpoint must be one of {', '.join(CHECKPOINTS)}; got {wanted!r}: choose one of these")
    if not run.is_dir():
        what = "is a file, not a run folder" if run.exists() else "does not exist"
        raise ValueError(f"{run} {what}: pass a run folder such as runs/photos")
    folder = run / "checkpoints"
    if not folder.is_dir():
        raise ValueError(f"{run} has no checkpoints, so it is not a run: pass one that `facetric train` made")
    names = CHECKPOINTS if wanted == "best" else ("last",)
    for name in names:
        if (path := folder / f"{name}.safetensors").is_file():
            return path
    raise ValueError(
        f"{run} has no checkpoint yet: there is no {' or '.join(names)}.safetensors in {folder}; finish training with "
        f"`facetric resume {run}`"
    )


def restored(origin: tuple[Any, ...], fingerprint: str) -> Embedder:
    """An embedder from its pickle: the arguments of `load`, and the fingerprint that it had."""
    path, checkpoint, device = origin
    found = load(path, checkpoint=checkpoint, device=device)
    if found.fingerprint != fingerprint:
        raise OSError(f"{path or 'the packaged network'} is no longer the model that it was: load it again")
    return found
