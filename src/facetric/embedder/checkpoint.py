"""A network in a file: its tensors as safetensors, and what is needed to rebuild and feed it in the metadata, with a checksum.

The checksum is the fingerprint of the network. NAME.pair_model.json beside NAME.safetensors says which vectors belong together.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from facetric.clustering import PairModel
from facetric.embedder.backbones import create_backbone
from facetric.embedder.network import Network
from facetric.embedder.weights import WeightsError
from facetric.files import checksummed, read_checksummed, write_atomically
from facetric.images import Preprocessing

_FORMAT = 3  # those of 0.2 did not say how images become the network's input
_OPTIONS = ("normalize", "freeze_through", "freeze_batchnorm", "normalize_features", "pooling")
_log = logging.getLogger("facetric")


def save_network(network: Network, path: str | Path) -> None:
    """Write the file atomically: a reader finds the old file or the new one, never a part of it."""
    tensors, spec = describe(network)
    content = save(tensors, metadata={"facetric": json.dumps({**spec, "sha256": tensors_hash(tensors, spec)})})
    write_atomically(Path(path), content)


def load_network(path: str | Path) -> Network:
    """The network that `save_network` wrote, in eval mode. A WeightsError if the file is missing, damaged or does not fit."""
    path = Path(path)
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get("facetric")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        spec: dict[str, Any] = {} if text is None else dict(json.loads(text))
    except FileNotFoundError as error:
        raise WeightsError(f"there is no network {path}: check the path") from error
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        raise WeightsError(
            f"{path} is damaged or not a safetensors file ({error}): restore it, or save the network again"
        ) from error
    if text is None:
        raise WeightsError(
            f"{path} was not written by facetric's save_network: to use its tensors in a backbone, pass it to "
            "build_network(..., weights=path)"
        )
    return rebuild(tensors, spec, path)


def rebuild(tensors: Mapping[str, Tensor], spec: dict[str, Any], path: Path | str) -> Network:
    """The network of `describe`, in eval mode; `spec` has its fingerprint too, as "sha256". Messages name the path."""
    if (found := spec.get("format")) != _FORMAT:
        writer = "facetric 0.2" if found in (1, 2) else f"another facetric (format {found})"
        raise WeightsError(
            f"{path} was written by {writer}, this version reads those of 0.3: train it again, or install the version that "
            "wrote it: pip install 'facetric<0.3'"
        )
    if spec.pop("sha256", None) != tensors_hash(tensors, spec):
        raise WeightsError(f"{path} is damaged, its checksum is wrong: restore it, or save the network again")
    try:
        preprocessing = Preprocessing(**spec["preprocessing"])
        with torch.random.fork_rng(devices=[]):
            backbone, _ = create_backbone(spec["backbone"], image_size=preprocessing.crop)
            options = {name: spec[name] for name in ("dim", *_OPTIONS)}
            network = Network(backbone, preprocessing, name=spec["backbone"], **options)
        network.load_state_dict(tensors)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:  # torch's, where tensors do not fit
        reason = " ".join(str(error).split())[:300]
        raise WeightsError(
            f"{path} describes a network that cannot be built here ({reason}): use the versions of timm and torchvision that "
            "wrote it, or save it again"
        ) from error
    return network.eval()


def is_described(path: Path) -> bool:
    """Whether `save_network` wrote the file; False for one that cannot be read."""
    try:
        with safe_open(path, framework="pt") as file:
            return "facetric" in (file.metadata() or {})
    except (OSError, SafetensorError):
        return False


def network_fingerprint(network: Network | Path) -> str:
    """Which network this is: a hash of its tensors and of how it is built and fed. Of a file it is read, not computed."""
    if isinstance(network, Network):
        return tensors_hash(*describe(network))
    try:
        with safe_open(network, framework="pt") as file:
            return str(json.loads((file.metadata() or {})["facetric"])["sha256"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise WeightsError(
            f"{network} is damaged or was not written by facetric ({error}): restore it, or train again"
        ) from error


def pair_model_file(weights: Path) -> Path:
    """Where the pair model of the network in this file is kept."""
    return weights.with_suffix(".pair_model.json")


def write_pair_model(weights: Path, fingerprint: str, pair_model: PairModel, classes: str) -> None:
    """Keep which vectors of the network in this file are probably of one class, and the classes that taught it, in words."""
    record = {"model": fingerprint, "pair_model": pair_model.as_dict(), "classes": classes}
    write_atomically(pair_model_file(weights), checksummed(record))


def read_pair_model(path: Path, fingerprint: str) -> tuple[PairModel | None, str]:
    """The pair model of the network with this fingerprint, and the classes that taught it; (None, "") if there is none.

    A damaged file is named in a warning.
    """
    try:
        record = read_checksummed(path.read_bytes(), required=False)
        return (
            (PairModel.from_dict(record["pair_model"]), str(record["classes"])) if record["model"] == fingerprint else (None, "")
        )
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        _log.warning("%s is damaged (%s): run `facetric evaluate` again", path, error)
        return None, ""


def describe(network: Network) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a network, and how it is built and fed."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    return tensors, {
        "format": _FORMAT,
        "backbone": network.name,
        "dim": network.dim if any(name.startswith("head.") for name in tensors) else None,
        "preprocessing": asdict(network.preprocessing),
        **{name: getattr(network, name) for name in _OPTIONS},
    }


def tensors_hash(tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> str:
    """Of the tensors, whatever the order of their names, and of what is known about them."""
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
