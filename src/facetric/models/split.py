"""A network cut in two at a named module: the first part is frozen and run once per image, the second is trained.

Both parts are the network itself with the modules of the other part replaced by one that does nothing: x → first part → x, or
activations → second part → maps. That is right where the network is a chain at the place of the cut, as efficientnets,
resnets, mobilenets and convnexts are between their blocks; whether it is, is found out with numbers, once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

_NO_CHAIN = "leave freeze_through out, or choose a chain of blocks: an efficientnet, resnet, mobilenet or convnext"


@dataclass(frozen=True)
class NetworkSplit:
    """Names of the outermost modules of each part, in the order in which they ran."""

    first: tuple[str, ...]
    second: tuple[str, ...]


class _PassThrough(nn.Module):
    def forward(self, values: Tensor, *_: Any, **__: Any) -> Tensor:
        return values


def first_part(network: nn.Module, split: NetworkSplit, images: Tensor) -> Tensor:
    """The activations behind the cut."""
    return _features(_without(network, split.second), images)


def second_part(network: nn.Module, split: NetworkSplit, activations: Tensor) -> Tensor:
    """The network's maps, from the activations behind the cut."""
    return _features(_without(network, split.first), activations)


def split_after(network: nn.Module, name: str, images: Tensor) -> NetworkSplit:
    """The split behind the module with this dotted name, tried out on `images`; a ValueError if there is none.

    `network` must be in eval mode.
    """
    order, maps = _order_of_ends(network, images)
    places = _places(network, order)
    if name not in order:
        near = get_close_matches(name, places, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"freeze_through names no module of the network: {name!r}. {hint}It may be {', '.join(places)}")
    split = _split_at(order, name)
    if not _is_right(network, split, images, maps):
        others = [place for place in places if _is_right(network, _split_at(order, place), images, maps)]
        hint = f"choose one of {', '.join(others)}" if others else f"nor anywhere else; {_NO_CHAIN}"
        raise ValueError(f"the network cannot be cut behind {name!r}, what follows needs more than its output: {hint}")
    return split


def _split_at(order: list[str], name: str) -> NetworkSplit:
    end = order.index(name)
    ancestors = {name[:i] for i, letter in enumerate(name) if letter == "."}
    return NetworkSplit(
        first=_outermost(order[: end + 1]), second=_outermost([n for n in order[end + 1 :] if n not in ancestors])
    )


def _is_right(network: nn.Module, split: NetworkSplit, images: Tensor, maps: Tensor) -> bool:
    """Whether both parts in a row give what the network gives."""
    try:
        with torch.no_grad():
            joined = second_part(network, split, first_part(network, split, images))
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError):  # shapes that do not fit, a list for a tensor
        return False
    return isinstance(joined, Tensor) and joined.shape == maps.shape and torch.allclose(joined, maps, rtol=1e-4, atol=1e-6)


def _features(network: nn.Module, images: Tensor) -> Tensor:
    forward_features: Callable[[Tensor], Tensor] = network.forward_features  # type: ignore[assignment]
    return forward_features(images)


def _order_of_ends(network: nn.Module, images: Tensor) -> tuple[list[str], Tensor]:
    """The modules that ran, in the order in which they finished, and what came out."""
    order: list[str] = []
    hooks = [
        module.register_forward_hook(lambda *_, name=name: order.append(name)) for name, module in network.named_modules() if name
    ]
    try:
        with torch.no_grad():
            maps = _features(network, images)
    finally:
        for hook in hooks:
            hook.remove()
    return list(dict.fromkeys(order)), maps


def _outermost(names: list[str]) -> tuple[str, ...]:
    """Without those that lie inside another of them."""
    known = set(names)
    return tuple(name for name in names if not any(name[:i] in known for i, letter in enumerate(name) if letter == "."))


def _places(network: nn.Module, order: list[str]) -> list[str]:
    """Where a cut is usual: behind the network's parts, and behind the parts of those that are chains."""
    chains = {name for name, module in network.named_modules() if name.count(".") == 0 and isinstance(module, nn.Sequential)}
    return [name for name in order if "." not in name or (name.count(".") == 1 and name.split(".")[0] in chains)]


def _without(module: nn.Module, names: tuple[str, ...], prefix: str = "") -> nn.Module:
    """The module with the named ones inside replaced; everything else is shared, parameters too."""
    clone = copy.copy(module)
    clone._modules = dict(module._modules)
    for child_name, child in module._modules.items():
        full_name = prefix + child_name
        if full_name in names:
            clone._modules[child_name] = _PassThrough()
        elif child is not None and any(name.startswith(full_name + ".") for name in names):
            clone._modules[child_name] = _without(child, names, full_name + ".")
    return clone
