"""A network cut in two behind a named module: the first part is frozen and run once per image, the second is trained.

Both parts are the network's own forward pass. The first stops behind the module. In the second the module returns the given
activations, and the modules that ran before it return zeros of the right shape at no cost, so that what a network does between
its modules still happens: a vision transformer adds its position embedding, prepends its class and register tokens and turns
positions into rotary angles. This is right where the rest of the network needs nothing of the first part but the activations, as
between the blocks of most convolutional networks and transformers. Whether it is, is checked with numbers when the split is made.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class NetworkSplit:
    """The cut behind the module `last`."""

    last: str
    first: Mapping[str, Any]  # the outermost modules up to `last`, in the order in which they ran, and zeros like their outputs
    images: Tensor  # zeros like the image it was tried on
    tensors: tuple[str, ...] = ()  # of the first part but of none of these modules: position embedding, class token


class _Reached(Exception):
    """Ends the first part."""

    def __init__(self, activations: Tensor) -> None:
        super().__init__()
        self.activations = activations


class Halves:
    """Both parts of a network, in the mode that it is in, built once; they share its parameters and run in any thread."""

    def __init__(self, network: nn.Module, split: NetworkSplit) -> None:
        self._split, self._given = split, threading.local()
        last = network.get_submodule(split.last)

        def run_and_stop(*inputs: Any, **options: Any) -> None:
            raise _Reached(last(*inputs, **options))

        def given(name: str) -> Callable[..., Any]:
            if name == split.last:
                return lambda *_, **__: self._given.activations
            return lambda *_, **__: _mapped(split.first[name], self._zeros)

        self._first = with_forwards(network, {split.last: run_and_stop}, training=False)
        self._second = with_forwards(network, {name: given(name) for name in split.first}, training=network.training)

    def first(self, images: Tensor) -> Tensor:
        """Images → activations: the output of the module at the cut."""
        try:
            feature_maps(self._first, images)
        except _Reached as reached:
            return reached.activations
        raise AssertionError(f"{self._split.last} did not run")

    def second(self, activations: Tensor) -> Tensor:
        """Activations → the network's maps or tokens."""
        self._given.activations = activations
        try:
            return feature_maps(self._second, self._zeros(self._split.images))
        finally:
            del self._given.activations

    def _zeros(self, like: Tensor) -> Tensor:
        """As many as there are activations, in the memory of one number."""
        activations: Tensor = self._given.activations
        n = len(activations) if like.shape[:1] == (1,) else like.shape[0]
        return activations.new_zeros(()).expand(n, *like.shape[1:])


def split_after(network: nn.Module, name: str, image: Tensor) -> NetworkSplit:
    """The split behind the module with this dotted name, tried on an image (1, C, H, W); a ValueError if it cannot be cut there.

    `network` must be in eval mode.
    """
    outputs, maps = _outputs_in_order(network, image)
    places = _places(network, list(outputs))
    if name not in outputs:
        near = get_close_matches(name, places, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(
            f"freeze_through must name a module of the backbone; got {name!r}: {hint}choose one of {', '.join(places)} "
            "(--set model.freeze_through=…)"
        )
    split = _split_at(outputs, name, image)
    if not _is_right(network, split, image, maps):
        others = working_places(network, image)
        way_out = f"choose one of {', '.join(others)}" if others else "nor anywhere else: freeze 'all' of it, or nothing"
        raise ValueError(
            f"the backbone cannot be frozen through {name!r}, the rest needs more than its output: {way_out} "
            "(--set model.freeze_through=…)"
        )
    return replace(split, tensors=_loose_tensors(network, split, image))


def working_places(network: nn.Module, image: Tensor) -> list[str]:
    """The usual places (stages, blocks) behind which the network can be cut. It must be in eval mode."""
    outputs, maps = _outputs_in_order(network, image)
    return [
        place for place in _places(network, list(outputs)) if _is_right(network, _split_at(outputs, place, image), image, maps)
    ]


def _split_at(outputs: Mapping[str, Any], name: str, image: Tensor) -> NetworkSplit:
    order = list(outputs)
    ran = dict.fromkeys(order[: order.index(name) + 1])
    first = [one for one in ran if not any(one[:i] in ran for i, letter in enumerate(one) if letter == ".")]  # the outermost
    return NetworkSplit(name, {module: outputs[module] for module in first}, _zeros_like(image))


def _is_right(network: nn.Module, split: NetworkSplit, image: Tensor, maps: Any) -> bool:
    """Whether both parts in a row give what the network gives."""
    try:
        with torch.no_grad():
            halves = Halves(network, split)
            joined = halves.second(halves.first(image))
            return joined.shape == maps.shape and torch.allclose(joined, maps, rtol=1e-4, atol=1e-6)
    except Exception:  # cut in a wrong place, a network can raise nearly anything
        return False


def _loose_tensors(network: nn.Module, split: NetworkSplit, image: Tensor) -> tuple[str, ...]:
    """The parameters that the activations depend on, and the network's own buffers, apart from those of the first modules."""
    with torch.enable_grad():
        activations = Halves(network, split).first(image)
    trained = {name: tensor for name, tensor in network.named_parameters() if tensor.requires_grad}
    reached = [name for name, _ in network.named_buffers(recurse=False)]
    if activations.requires_grad:
        gradients = torch.autograd.grad(activations.sum(), list(trained.values()), allow_unused=True)
        reached += [name for name, gradient in zip(trained, gradients, strict=True) if gradient is not None]
    return tuple(name for name in reached if not name.startswith(tuple(f"{module}." for module in split.first)))


def feature_maps(network: nn.Module, images: Tensor) -> Tensor:
    """What the network gives before pooling: maps, or the tokens of a transformer."""
    forward_features: Callable[[Tensor], Tensor] = network.forward_features  # type: ignore[assignment]
    return forward_features(images)


def _outputs_in_order(network: nn.Module, image: Tensor) -> tuple[dict[str, Any], Tensor]:
    """The modules that ran, in the order in which they finished, with zeros like their outputs; and the network's maps."""
    outputs: dict[str, Any] = {}

    def keep(name: str, output: Any) -> None:
        outputs.setdefault(name, _mapped(output, _zeros_like))

    hooks = [
        module.register_forward_hook(lambda module, inputs, output, name=name: keep(name, output))
        for name, module in network.named_modules()
        if name
    ]
    try:
        with torch.no_grad():
            maps = feature_maps(network, image)
    finally:
        for hook in hooks:
            hook.remove()
    return outputs, maps


def _zeros_like(tensor: Tensor) -> Tensor:
    """Of the same shape, in the memory of one number."""
    return torch.zeros(()).expand(tensor.shape)


def _mapped(output: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A module's output with its tensors changed; some return tuples, such as the tokens and the shape of their grid."""
    if isinstance(output, Tensor):
        return change(output)
    return type(output)(_mapped(part, change) for part in output) if type(output) in {tuple, list} else output


def _places(network: nn.Module, order: list[str]) -> list[str]:
    """Where a cut is usual: behind the network's parts, and behind the parts of those that are chains."""
    chains = {name for name, module in network.named_children() if isinstance(module, nn.Sequential | nn.ModuleList)}
    return [name for name in order if "." not in name or (name.count(".") == 1 and name.split(".")[0] in chains)]


def with_forwards(
    module: nn.Module, forwards: Mapping[str, Callable[..., Any]], *, training: bool, prefix: str = ""
) -> nn.Module:
    """The module with another forward in the named ones inside; everything else is shared, parameters too."""
    clone = copy.copy(module)
    clone.training = training
    clone._modules = dict(module._modules)
    for child_name, child in module._modules.items():
        full_name = prefix + child_name
        if child is None:
            continue
        if full_name in forwards:
            other = copy.copy(child)
            other.forward = forwards[full_name]
            clone._modules[child_name] = other
        elif any(name.startswith(full_name + ".") for name in forwards):
            clone._modules[child_name] = with_forwards(child, forwards, training=training, prefix=full_name + ".")
    return clone
