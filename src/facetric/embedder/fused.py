"""A network for inference on a CPU: batch normalization and activation become part of the convolution before them.

In eval mode batch normalization is a factor and a shift per channel, which fold into the weights of the convolution whose output
it takes, and oneDNN applies the bias and the usual activations while the output is still in a register. The padding of
TensorFlow's "same" convolutions, which torch makes with a copy of the input, becomes padding that oneDNN does by itself. What
follows what is found by running the network once; whether the result is right is checked with numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.modules.batchnorm import _BatchNorm

from facetric.embedder.split import feature_maps, with_forwards
from facetric.machine import left_out

with left_out("wandb"):  # timm imports it for a function of its own, if it is installed; that takes as long as torch does
    from timm.layers.conv2d_same import Conv2dSame

# oneDNN's names of the activations, with their numbers.
ACTIVATIONS: dict[type[nn.Module], tuple[str, list[float]]] = {
    nn.ReLU: ("relu", []),
    nn.ReLU6: ("hardtanh", [0.0, 6.0]),
    nn.SiLU: ("swish", []),
    nn.Hardswish: ("hardswish", []),
}

_USUAL_BATCH = 8  # what weights are laid out for; any other works too


def fused(network: nn.Module, images: Tensor, *, apart: str | None = None) -> nn.Module:
    """The network with fused convolutions, for inference; the network itself where there is nothing to fuse or it does not work.

    It is tried on `images` (n, C, H, W); images of another size are right but not faster. Weights are copied:
    later changes of the network do not show. The network must be in eval mode. Nothing is fused across the end of `apart`.
    """
    return rebuilt(network, images, FusedConvolution, ACTIVATIONS, apart=apart)


def rebuilt(
    network: nn.Module,
    images: Tensor,
    fuse: Callable[[Chain, nn.Module | None], Callable[[Tensor], Tensor]],
    fusible: Container[type[nn.Module]],
    *,
    apart: str | None,
) -> nn.Module:
    """The network with `fuse` in place of its chains, if it gives the same maps for these images; else the network itself."""
    if images.device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return network
    try:
        with torch.no_grad():
            trace = Trace(network, images)
            forwards: dict[str, Callable[[Tensor], Tensor]] = {}
            for chain in trace.chains(apart):
                forwards |= chain.forwards(fuse, fusible)
            faster = with_forwards(network, forwards, training=network.training)
            return faster if forwards and _is_close(feature_maps(faster, images), trace.maps) else network
    except (RuntimeError, AttributeError):  # a torch whose oneDNN operators are missing or other than these
        return network


class Trace:
    """Which module took the output of which, seen in one forward pass."""

    def __init__(self, network: nn.Module, images: Tensor) -> None:
        self.modules: dict[str, nn.Module] = dict(network.named_modules())
        self.inputs: dict[str, Tensor] = {}
        self.followers: dict[str, str] = {}  # the first module that took another's output as it was
        made: dict[tuple[int, int], str] = {}  # by which module; a tensor changed in place has another version
        kept: list[Tensor] = []  # as long as it lives, no other tensor gets its id

        def enter(name: str, value: Tensor) -> None:
            self.inputs[name] = value
            if (maker := made.get((id(value), value._version))) is not None:
                self.followers.setdefault(maker, name)

        def leave(name: str, output: Tensor) -> None:
            made[id(output), output._version] = name
            kept.append(output)

        hooks = []
        for name, module in self.modules.items():
            if isinstance(module, nn.Conv2d | _BatchNorm) or type(module) in ACTIVATIONS:
                hooks.append(module.register_forward_pre_hook(lambda _, inputs, name=name: enter(name, inputs[0])))
                hooks.append(module.register_forward_hook(lambda _, inputs, output, name=name: leave(name, output)))
        try:
            self.maps = feature_maps(network, images)
        finally:
            for hook in hooks:
                hook.remove()

    def chains(self, apart: str | None) -> Iterator[Chain]:
        """Convolutions followed by batch normalization that nothing is needed from but its output."""
        for name, norm_name in self.followers.items():
            convolution, norm = self.modules[name], self.modules[norm_name]
            if apart in {name, norm_name} or not (_is_plain(convolution) and isinstance(norm, _BatchNorm)):
                continue
            if norm.running_mean is None:
                continue
            if (inside := getattr(norm, "act", None)) is not None:  # timm's batch normalization has its activation inside
                yield Chain(convolution, norm, inside, self.inputs[name], (name, norm_name))
                continue
            after = self.followers.get(norm_name, "")
            activation = self.modules[after] if type(self.modules[after]) in ACTIVATIONS else None
            yield Chain(convolution, norm, activation, self.inputs[name], (name, norm_name, *([after] if activation else [])))


@dataclass(frozen=True, eq=False)
class Chain:
    """A convolution, the batch normalization that takes its output, and the activation behind that."""

    convolution: nn.Conv2d
    norm: _BatchNorm
    activation: nn.Module | None
    maps: Tensor  # what the convolution took
    names: tuple[str, ...]  # of the modules; the activation's too where it is not part of the batch normalization

    def forwards(
        self, fuse: Callable[[Chain, nn.Module | None], Callable[[Tensor], Tensor]], fusible: Container[type[nn.Module]]
    ) -> dict[str, Callable[[Tensor], Tensor]]:
        """Another forward for each module: all work in that of the convolution, or all but an activation that is not fusible."""
        if self.activation is None or type(self.activation) in fusible:
            return {self.names[0]: fuse(self, self.activation)} | dict.fromkeys(self.names[1:], _unchanged)
        return {self.names[0]: fuse(self, None), self.names[1]: _unchanged} | {self.names[-1]: self.activation.forward}

    def one_by_one(self, maps: Tensor, activation: nn.Module | None) -> Tensor:
        """As the modules do it."""
        normed: Tensor = _BatchNorm.forward(self.norm, self.convolution(maps))
        return normed if activation is None else activation(normed)

    def padding(self) -> tuple[tuple[int, int], list[int]]:
        """Zeros on both sides of the maps, and zeros around the kernel as `pad` takes them.

        oneDNN's operator pads both sides alike. TensorFlow has a pixel less in front: so has a kernel with a zero in front.
        """
        (top, bottom), (left, right) = (_padding(self.convolution, axis, self.maps.shape[2 + axis]) for axis in (0, 1))
        return (bottom, right), [right - left, 0, bottom - top, 0]


class FusedConvolution:
    """A chain in one call of oneDNN, for maps of the size and type seen; one by one for others, and under autocast."""

    def __init__(self, chain: Chain, activation: nn.Module | None) -> None:
        self.chain, self.activation = chain, activation
        convolution = chain.convolution
        self.stride, self.dilation, self.groups = convolution.stride, convolution.dilation, convolution.groups
        self.operation = ("none", []) if activation is None else ACTIVATIONS[type(activation)]
        self.padding, around = chain.padding()
        weight, bias = (tensor.to(convolution.weight.dtype) for tensor in folded(convolution, chain.norm, torch.float64))
        self.bias, self.weight = bias, self._laid_out(pad(weight, around))

    def __call__(self, maps: Tensor) -> Tensor:
        usual = self.chain.maps
        if (
            maps.shape[2:] != usual.shape[2:]
            or maps.dtype != usual.dtype
            or maps.device != usual.device
            or torch.is_autocast_enabled("cpu")
        ):
            return self.chain.one_by_one(maps, self.activation)
        name, numbers = self.operation
        output: Tensor = torch.ops.mkldnn._convolution_pointwise(
            maps, self.weight, self.bias, self.padding, self.stride, self.dilation, self.groups, name, numbers, None
        )
        return output

    def __getstate__(self) -> dict[str, Any]:
        shape = (len(self.bias), -1, *self.weight.shape[-2:])
        return {**self.__dict__, "weight": self.weight.to_dense().reshape(shape)}  # oneDNN's layout cannot be copied or pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.weight = self._laid_out(state["weight"])

    def _laid_out(self, weight: Tensor) -> Tensor:
        """The weight in the order in which oneDNN takes it fastest."""
        shape = [_USUAL_BATCH, *self.chain.maps.shape[1:]]
        found: Tensor = torch.ops.mkldnn._reorder_convolution_weight(
            weight, self.padding, self.stride, self.dilation, self.groups, shape
        )
        return found


def folded(convolution: nn.Conv2d, norm: _BatchNorm, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The weight and bias of a convolution that does the batch normalization too, computed in `dtype`; gradients pass through."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    factor = (norm.running_var.to(dtype) + norm.eps).rsqrt()
    factor = factor if norm.weight is None else factor * norm.weight.to(dtype)
    mean = norm.running_mean.to(dtype)
    bias = (-mean if convolution.bias is None else convolution.bias.to(dtype) - mean) * factor
    return convolution.weight.to(dtype) * factor[:, None, None, None], bias if norm.bias is None else norm.bias.to(dtype) + bias


def _is_plain(module: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Whether it is a convolution with zeros as padding: torch's, or timm's with the padding of TensorFlow."""
    return (
        type(module) in {nn.Conv2d, Conv2dSame}
        and isinstance(module, nn.Conv2d)
        and module.padding_mode == "zeros"
        and not isinstance(module.padding, str)
    )


def _padding(convolution: nn.Conv2d, axis: int, size: int) -> tuple[int, int]:
    """Zeros before and after the map along one axis; TensorFlow puts the odd one after it."""
    if not isinstance(convolution, Conv2dSame):
        assert not isinstance(convolution.padding, str)
        return convolution.padding[axis], convolution.padding[axis]
    stride, reach = convolution.stride[axis], convolution.dilation[axis] * (convolution.kernel_size[axis] - 1) + 1
    total = max((-(-size // stride) - 1) * stride + reach - size, 0)
    return total // 2, total - total // 2


def _unchanged(maps: Tensor) -> Tensor:
    return maps


def _is_close(found: Tensor, expected: Tensor) -> bool:
    """Up to rounding: a thousandth of the largest value, a tenth in bfloat16, where a wrong fusion changes all of it."""
    most = 1e-3 if expected.dtype == torch.float32 else 0.1
    return found.shape == expected.shape and bool((found - expected).abs().max() <= most * expected.abs().max())
