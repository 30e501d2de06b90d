"""Convolution, frozen batch normalization and activation in one pass on a CPU, forward and backward.

Where running statistics stay as they are, batch normalization is a factor and a shift per channel, and convolution and
normalization together are one convolution with weight w·f and bias b + (c − μ)·f, f = g / √(σ² + ε). Its gradients, and those of
w, g and b by the chain rule, are those of the two in a row, without four passes over the maps. torch's gradient of a depthwise
kernel of 5 × 5 takes a third of a step of the default backbone; ours goes over the maps once. The padding of TensorFlow's "same"
convolutions, which torch makes with a copy of the input, becomes padding that oneDNN does. What follows what is found by
running the network once; whether the result is right is checked with numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeGuard

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad
from torch.nn.modules.batchnorm import _BatchNorm

from facetric.embedder.split import feature_maps, with_forwards
from facetric.machine import left_out

with left_out("wandb"):  # timm imports it for a function of its own, if it is installed; that takes as long as torch does
    from timm.layers.conv2d_same import Conv2dSame

_unchanged = nn.Identity().forward
_IMAGES_AT_A_TIME = 16  # of a thread; fixed, so that sums do not depend on the number of threads
# The activations whose gradient follows from their output, by oneDNN's names and numbers.
_OPERATIONS: dict[type[nn.Module], tuple[str, list[float]]] = {nn.ReLU: ("relu", []), nn.ReLU6: ("hardtanh", [0.0, 6.0])}


def fused(network: nn.Module, images: Tensor, *, apart: str | None = None, constant: bool = False) -> nn.Module:
    """The network with the same parameters and faster passes; the network itself where nothing can be fused.

    For batch normalization in eval mode: where a module is put in training mode, it does what it did before. Gradients reach the
    parameters of the network; with `constant` there are none, and the weights are those of now. It is tried on `images` (n, C, H,
    W) with all of it in eval mode: dropout would hide whether the maps are the same. Images of another size are right but not
    faster. Nothing is fused across the end of the module `apart`.
    """
    if images.device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return network
    modes = {name: module.training for name, module in network.named_modules(remove_duplicate=False)}
    network.eval()
    faster = network
    try:
        with torch.inference_mode(False), torch.no_grad():  # where tensors have versions, which tell what follows what
            chains, maps = _traced(network, images, apart, constant)
            if chains:
                faster = with_forwards(network, chains, training=False)
                error = (feature_maps(faster, images) - maps).abs().max()
                if not error <= 1e-3 * maps.abs().max():  # rounding is far below; a wrong fusion changes all of it
                    faster = network
    except (RuntimeError, AttributeError):  # a torch whose oneDNN operators are missing or other than these
        faster = network
    finally:
        for other in (network, faster):
            for name, module in other.named_modules(remove_duplicate=False):
                module.training = modes[name]
    return faster


def _traced(
    network: nn.Module, images: Tensor, apart: str | None, constant: bool
) -> tuple[dict[str, Callable[[Tensor], Tensor]], Tensor]:
    """Another forward for every module that can be fused, by name, and the network's maps."""
    modules = dict(network.named_modules())
    shapes: dict[str, torch.Size] = {}  # of the maps that a module took
    followers: dict[str, str] = {}  # the first module that took another's output as it was
    made: dict[tuple[int, int], str] = {}  # by which module; a tensor changed in place has another version
    kept: list[Tensor] = []  # as long as it lives, no other tensor gets its id

    def watched(name: str, forward: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def run(value: Tensor) -> Tensor:
            shapes[name] = value.shape
            if (maker := made.get((id(value), value._version))) is not None:
                followers.setdefault(maker, name)
            output = forward(value)
            made[id(output), output._version] = name
            kept.append(output)
            return output

        return run

    forwards = {
        name: watched(name, module.forward)
        for name, module in modules.items()
        if isinstance(module, nn.Conv2d | _BatchNorm) or type(module) in _OPERATIONS
    }
    maps = feature_maps(with_forwards(network, forwards, training=False), images)
    found: dict[str, Callable[[Tensor], Tensor]] = {}
    for name, norm_name in followers.items():
        convolution, norm = modules[name], modules[norm_name]
        if apart in {name, norm_name} or not _is_plain(convolution):
            continue
        if not isinstance(norm, _BatchNorm) or norm.running_mean is None:
            continue
        inside = getattr(norm, "act", None)  # timm's batch normalization has its activation inside
        after = followers.get(norm_name, "") if inside is None else ""
        activation = modules[after] if inside is None else inside
        is_fused = type(activation) in _OPERATIONS  # others are done as before
        found[name] = _Fused(convolution, norm, activation if is_fused else None, shapes[name], constant)
        found[norm_name] = _unchanged if is_fused or inside is None else inside.forward
        if is_fused and after:
            found[after] = _unchanged
    return found, maps


class _Fused:
    """A convolution, the batch normalization that takes its output, and the activation behind that, as one convolution.

    Its weight and bias are made of the present parameters, once if they are `constant`. Maps of another size or type than those
    seen go one by one.
    """

    def __init__(
        self, convolution: nn.Conv2d, norm: _BatchNorm, activation: nn.Module | None, shape: torch.Size, constant: bool
    ) -> None:
        self.convolution, self.norm, self.activation, self.size = convolution, norm, activation, shape[2:]
        # oneDNN's operator pads both sides alike. TensorFlow has a pixel less in front: so has a kernel with a zero in front.
        (top, bottom), (left, right) = (_padding(convolution, axis, self.size[axis]) for axis in (0, 1))
        self.padding, self.around = (bottom, right), [right - left, 0, bottom - top, 0]
        self.settings = (convolution.stride, self.padding, convolution.dilation, convolution.groups)
        self.constant: tuple[Tensor, Tensor] | None = None
        if constant:  # in the order in which oneDNN takes it fastest
            weight, bias = self.folded()
            stride, padding, dilation, groups = self.settings
            weight = torch.ops.mkldnn._reorder_convolution_weight(weight, padding, stride, dilation, groups, list(shape))
            self.constant = weight, bias

    def __call__(self, maps: Tensor) -> Tensor:
        is_usual = maps.shape[2:] == self.size and maps.dtype == torch.float32 and maps.device.type == "cpu"
        if not is_usual or self.norm.training or torch.is_autocast_enabled("cpu"):
            normed: Tensor = _BatchNorm.forward(self.norm, self.convolution(maps))
            return normed if self.activation is None else self.activation(normed)
        kind = None if self.activation is None else type(self.activation)
        if self.constant is not None:
            return _forward(maps, *self.constant, self.settings, kind)
        output: Tensor = _Convolution.apply(maps, *self.folded(), self.settings, kind)
        return output

    def folded(self) -> tuple[Tensor, Tensor]:
        """The weight and bias of the convolution that does the batch normalization too."""
        convolution, norm = self.convolution, self.norm
        assert norm.running_mean is not None
        assert norm.running_var is not None
        factor = (norm.running_var + norm.eps).rsqrt()
        factor = factor if norm.weight is None else factor * norm.weight
        mean = norm.running_mean
        bias = (-mean if convolution.bias is None else convolution.bias - mean) * factor
        weight = pad(convolution.weight * factor[:, None, None, None], self.around)
        return weight, bias if norm.bias is None else norm.bias + bias


def _forward(maps: Tensor, weight: Tensor, bias: Tensor, settings: tuple[Any, ...], kind: type[nn.Module] | None) -> Tensor:
    stride, padding, dilation, groups = settings
    name, numbers = ("none", []) if kind is None else _OPERATIONS[kind]
    output: Tensor = torch.ops.mkldnn._convolution_pointwise(
        maps, weight, bias, padding, stride, dilation, groups, name, numbers, None
    )
    return output


def _is_plain(module: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Whether it is a convolution with zeros as padding: torch's, or timm's with the padding of TensorFlow."""
    return type(module) in {nn.Conv2d, Conv2dSame} and module.padding_mode == "zeros" and not isinstance(module.padding, str)


def _padding(convolution: nn.Conv2d, axis: int, size: int) -> tuple[int, int]:
    """Zeros before and after the map along one axis; TensorFlow puts the odd one after it."""
    if not isinstance(convolution, Conv2dSame):
        assert not isinstance(convolution.padding, str)
        return convolution.padding[axis], convolution.padding[axis]
    stride, reach = convolution.stride[axis], convolution.dilation[axis] * (convolution.kernel_size[axis] - 1) + 1
    total = max((-(-size // stride) - 1) * stride + reach - size, 0)
    return total // 2, total - total // 2


class _Convolution(torch.autograd.Function):
    """Convolution, bias and activation."""

    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, weight: Tensor, bias: Tensor, settings: tuple[Any, ...], activation: type[nn.Module] | None
    ) -> Tensor:
        maps = maps.contiguous(memory_format=torch.channels_last)
        output = _forward(maps, weight, bias, settings, activation)
        ctx.settings, ctx.activation = settings, activation
        ctx.save_for_backward(maps, weight, output if activation else None)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (maps, weight, output), (stride, padding, dilation, groups) = ctx.saved_tensors, ctx.settings
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        if ctx.activation is nn.ReLU:
            gradient = torch.ops.aten.threshold_backward(gradient, output, 0)
        elif ctx.activation is nn.ReLU6:
            gradient = torch.ops.aten.hardtanh_backward(gradient, output, 0, 6)
        needs_maps, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        ours = weight.shape[1] == 1 and groups == weight.shape[0] and min(weight.shape[2:]) > 3 and max(dilation) == 1
        wanted = [needs_maps, needs_weight and not ours, False]
        of_maps, of_weight = None, None
        if any(wanted):
            of_maps, of_weight, _ = torch.ops.aten.convolution_backward(
                gradient, maps, weight, None, stride, padding, dilation, False, [0, 0], groups, wanted
            )
        if needs_weight and ours:
            of_weight = depthwise_weight_gradient(maps, gradient, weight.shape, stride, padding)
        return of_maps, of_weight, gradient.sum(dim=(0, 2, 3)) if needs_bias else None, None, None


def depthwise_weight_gradient(
    maps: Tensor, gradient: Tensor, shape: tuple[int, ...], stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    """The gradient (C, 1, height, width) of the kernel of a depthwise convolution of maps (n, C, H, W).

    Images are taken a few at a time by torch's number of threads; the sum does not depend on how many those are.
    """
    x, g = (np.ascontiguousarray(tensor.detach().permute(0, 2, 3, 1).numpy()) for tensor in (maps, gradient))
    parts = range(0, len(x), _IMAGES_AT_A_TIME)
    sums = np.zeros((len(parts), shape[2], shape[3], shape[0]), dtype=np.float32)

    def add(i: int) -> None:
        images = slice(parts[i], parts[i] + _IMAGES_AT_A_TIME)
        _add_products(x[images], g[images], stride[0], stride[1], padding[0], padding[1], sums[i])

    with ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="facetric-gradients") as pool:
        list(pool.map(add, range(len(parts))))
    return torch.from_numpy(sums.sum(axis=0)).permute(2, 0, 1)[:, None].contiguous()


@njit(cache=True, nogil=True)
def _add_products(
    maps: NDArray[np.float32],
    gradient: NDArray[np.float32],
    stride_y: int,
    stride_x: int,
    padding_y: int,
    padding_x: int,
    sums: NDArray[np.float32],
) -> None:
    """sums[i, j] += maps[n, y·s − p + i, x·s − p + j] · gradient[n, y, x], for all n, y and x; maps (n, H, W, C)"""
    n_images, height, width, _ = maps.shape
    for n in range(n_images):
        for y in range(gradient.shape[1]):
            top = y * stride_y - padding_y
            for x in range(gradient.shape[2]):
                left = x * stride_x - padding_x
                for i in range(max(0, -top), min(sums.shape[0], height - top)):
                    for j in range(max(0, -left), min(sums.shape[1], width - left)):
                        _add_product(maps[n, top + i, left + j], gradient[n, y, x], sums[i, j])


@njit(cache=True, nogil=True, fastmath={"contract"})
def _add_product(a: NDArray[np.float32], b: NDArray[np.float32], sums: NDArray[np.float32]) -> None:
    for c in range(len(sums)):
        sums[c] += a[c] * b[c]
