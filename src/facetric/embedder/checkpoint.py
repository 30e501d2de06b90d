"""An embedder in a file: its tensors as safetensors, and what is needed to rebuild it in the file's metadata, with a checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from facetric.embedder.backbones import create_backbone
from facetric.embedder.input_spec import InputSpec
from facetric.embedder.network import Network
from facetric.embedder.weights import WeightsError
from facetric.files import write_atomically

_FORMAT = 2  # 1 had a checksum of the tensors alone


def save_network(embedder: Network, path: str | Path) -> None:
    """Write the file atomically: a reader finds the old file or the new one, never a part of it."""
    path = Path(path)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in embedder.state_dict().items()}
    spec = {
        "format": _FORMAT,
        "backbone": embedder.name,
        "dim": embedder.dim,
        "normalize": embedder.normalize,
        "freeze_through": embedder.freeze_through,
        "freeze_batchnorm": embedder.freeze_batchnorm,
        "input": asdict(embedder.input_spec),
    }
    if embedder.normalize_features:  # not in the files of other heads, so that theirs stay as they are
        spec["normalize_features"] = True
    if embedder.pooling != "average":
        spec["pooling"] = embedder.pooling
    content = save(tensors, metadata={"facetric": json.dumps({**spec, "sha256": _digest(tensors, spec)})})
    write_atomically(path, content)


def load_network(path: str | Path) -> Network:
    """The embedder that `save_network` wrote, in eval mode. A WeightsError if the file is missing, damaged or does not fit."""
    path = Path(path)
    spec, tensors = _read(path)
    try:
        input_spec = InputSpec(**{**spec["input"], "mean": tuple(spec["input"]["mean"]), "std": tuple(spec["input"]["std"])})
        with torch.random.fork_rng(devices=[]):
            backbone, _ = create_backbone(spec["backbone"], image_size=input_spec.size)
            embedder = Network(
                backbone,
                input_spec,
                name=spec["backbone"],
                dim=spec["dim"],
                normalize=spec["normalize"],
                freeze_through=spec["freeze_through"],
                freeze_batchnorm=spec["freeze_batchnorm"],
                normalize_features=spec.get("normalize_features", False),
                pooling=spec.get("pooling", "average"),
            )
    except (KeyError, TypeError, ValueError) as error:
        raise WeightsError(f"{path} describes an embedder that cannot be built here ({error}): save it again") from error
    _check_shapes(path, embedder.state_dict(), tensors)
    embedder.load_state_dict(tensors)
    return embedder.eval()


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise WeightsError(f"there is no embedder {path}: check the path") from error
    except (OSError, SafetensorError) as error:
        raise WeightsError(
            f"{path} is damaged or not a safetensors file ({error}): restore it, or save the embedder again"
        ) from error
    if "facetric" not in metadata:
        raise WeightsError(
            f"{path} was not written by facetric's save_network: to use its tensors in a backbone, pass it to "
            "build_network(..., weights=path)"
        )
    try:
        spec: dict[str, Any] = json.loads(metadata["facetric"])
    except json.JSONDecodeError as error:
        raise WeightsError(
            f"{path} is damaged, its description cannot be read: restore it, or save the embedder again"
        ) from error
    if not isinstance(spec, dict) or spec.get("format") not in (1, _FORMAT):
        raise WeightsError(
            f"{path} has a format that this version does not read (1 and {_FORMAT}): use the facetric that wrote it"
        )
    described = {key: value for key, value in spec.items() if key != "sha256"}
    if spec.get("sha256") != _digest(tensors, {} if spec["format"] == 1 else described):
        raise WeightsError(f"{path} is damaged, its checksum is wrong: restore it, or save the embedder again")
    return spec, tensors


def _check_shapes(path: Path, own: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    for name in [*own, *tensors]:
        ours, theirs = (tuple(state[name].shape) if name in state else "missing" for state in (own, tensors))
        if ours != theirs:
            raise WeightsError(
                f"{path} does not fit the network that it describes: {name!r} is {theirs} in the file and {ours} in the network: "
                "use the versions of timm and torchvision that wrote it"
            )


def _digest(tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode() if description else b"")
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def network_fingerprint(path: Path) -> str:
    """The checksum in an embedder's file, without reading its tensors: which model this is."""
    try:
        with safe_open(path, framework="pt") as file:
            return str(json.loads((file.metadata() or {})["facetric"])["sha256"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"{path} is damaged or was not written by facetric ({error}): restore it, or train again") from error
