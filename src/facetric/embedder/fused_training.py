"""Training on a CPU with frozen batch normalization: a convolution, its normalization and its activation in one pass.

Where running statistics stay as they are, batch normalization is a factor and a shift per channel, and convolution and
normalization together are one convolution with weight w·f and bias b + (c − μ)·f, f = g / √(σ² + ε). Its gradients, and those of
w, g and b by the chain rule, are those of the two in a row, without four passes over the maps. torch's gradient of a depthwise
kernel of 5 × 5 takes a third of a step of the default backbone; ours goes over the maps once.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from facetric.embedder.fused import Chain, folded, rebuilt

_IMAGES_AT_A_TIME = 16  # of a thread; fixed, so that sums do not depend on the number of threads
# The activations whose gradient follows from their output, by oneDNN's names and numbers.
_OPERATIONS: dict[type[nn.Module], tuple[str, list[float]]] = {
    nn.ReLU: ("relu", []),
    nn.ReLU6: ("hardtanh", [0.0, 6.0]),
}


def fused_to_train(network: nn.Module, images: Tensor, *, apart: str | None = None) -> nn.Module:
    """The network with the same parameters and faster passes; the network itself where nothing can be fused.

    Its batch normalization must be in eval mode. Gradients reach the parameters of the network. It is tried on `images` with all
    of it in eval mode: dropout would hide whether the maps are the same. Nothing is fused across the end of the module `apart`.
    """
    modes = {name: module.training for name, module in network.named_modules(remove_duplicate=False)}
    network.eval()
    faster = network
    try:
        faster = rebuilt(network, images, _TrainedConvolution, _OPERATIONS, apart=apart)
    finally:
        for other in (network, faster):
            for name, module in other.named_modules(remove_duplicate=False):
                module.training = modes[name]
    return faster


class _TrainedConvolution:
    """A chain as one convolution, its weight and bias made of the present parameters."""

    def __init__(self, chain: Chain, activation: nn.Module | None) -> None:
        self.chain, self.activation = chain, activation
        self.padding, self.around = chain.padding()

    def __call__(self, maps: Tensor) -> Tensor:
        convolution, norm = self.chain.convolution, self.chain.norm
        same_size = maps.shape[2:] == self.chain.maps.shape[2:]
        if not same_size or norm.training or maps.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
            return self.chain.one_by_one(maps, self.activation)
        weight, bias = folded(convolution, norm, torch.float32)
        weight = pad(weight, self.around)
        settings = (convolution.stride, self.padding, convolution.dilation, convolution.groups)
        output: Tensor = _Convolution.apply(maps, weight, bias, settings, self.activation and type(self.activation))
        return output


class _Convolution(torch.autograd.Function):
    """Convolution, bias and activation."""

    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, weight: Tensor, bias: Tensor, settings: tuple[Any, ...], activation: type[nn.Module] | None
    ) -> Tensor:
        stride, padding, dilation, groups = settings
        maps = maps.contiguous(memory_format=torch.channels_last)
        name, numbers = ("none", []) if activation is None else _OPERATIONS[activation]
        output: Tensor = torch.ops.mkldnn._convolution_pointwise(
            maps, weight, bias, padding, stride, dilation, groups, name, numbers, None
        )
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
