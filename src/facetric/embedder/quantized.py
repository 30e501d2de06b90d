"""A network for inference on a CPU in 8-bit integers.

A convolution with its batch normalization and activation (`fused.py`) takes maps of unsigned bytes and weights of signed bytes,
whose products are summed exactly. Every channel of a map has a grid of its own, 256 equal steps over the range of its values, and
every output channel a step for its weights. Where a convolution follows directly on ReLU6, maps stay in bytes; sums of branches,
and whatever else the network does, are in float32.

No images are needed. ReLU6 ends at 0 and 6. What other maps look like follows from the statistics of batch normalization, which
are those of the network's own training images: with each output of a batch normalization replaced by noise of the mean and
standard deviation that it stands for, the network is run once, and a channel's range is its mean ± 8 standard deviations. The
same noise says how far rounded weights move the mean of an output, and the bias makes up for it (Nagel et al. 2019, "Data-free
quantization through weight equalization and bias correction"). So a vector follows from the weights and the picture alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, pad

from facetric.embedder.fused import ACTIVATIONS, Chain, FusedConvolution, Trace, folded
from facetric.embedder.split import feature_maps, with_forwards

Forward = Callable[[Tensor], Tensor]

_REACH = 8  # standard deviations from the mean to the end of a grid
_LARGEST, _LARGEST_WEIGHT = 255, 127
_N_NOISE = 8  # images of noise
_AT_LEAST = 0.9  # cosine between the maps in float32 and in integers; a network that does not suit has far less


def quantized(network: nn.Module, images: Tensor, *, apart: str | None = None) -> nn.Module:
    """The network with convolutions in 8-bit integers, or a ValueError where that is impossible.

    As for `fused`: it is tried on `images` (n, C, H, W), takes images of another size in float32, copies the weights, and must be
    in eval mode. Nothing is in bytes at the end of the module `apart`.
    """
    _check_processor(images.device)
    with torch.no_grad():
        trace = Trace(network, images)
        chains = {chain.names[0]: chain for chain in trace.chains(apart)}
        if not any(isinstance(chain.activation, nn.ReLU6) for chain in chains.values()):
            raise ValueError(
                "precision int8 needs a network with batch normalization and ReLU6, such as EfficientNet-Lite; this one has "
                "none: use --precision 32"
            )
        faster = with_forwards(network, _forwards(network, trace, chains, images, apart), training=False)
        agreement = float(cosine_similarity(feature_maps(faster, images).flatten(), trace.maps.flatten(), dim=0))
    if not agreement >= _AT_LEAST:
        raise ValueError(
            f"precision int8 does not suit this network, its maps have a cosine of {agreement:.2f} to those in float32: use "
            "--precision 32"
        )
    return faster


def _forwards(
    network: nn.Module, trace: Trace, chains: Mapping[str, Chain], images: Tensor, apart: str | None
) -> dict[str, Forward]:
    """Another forward for every module of the chains."""
    inputs = _expected_inputs(network, list(chains), images)
    follower = {name: trace.followers.get(chain.names[-1], "") for name, chain in chains.items()}
    before = {after: chains[name] for name, after in follower.items()}
    grids = {name: _grid(chain, inputs[name], before.get(name)) for name, chain in chains.items()}
    found: dict[str, Forward] = {}
    for name, chain in chains.items():
        leaves = apart is not None and name.startswith(f"{apart}.") and not follower[name].startswith(f"{apart}.")
        given = None if leaves or not isinstance(chain.activation, nn.ReLU6) else grids.get(follower[name])
        found |= chain.forwards(partial(_convolution, grids[name], inputs[name].mean, given), ACTIVATIONS)
    return found


def _convolution(taken: Grid | None, mean: Tensor, given: Grid | None, chain: Chain, activation: nn.Module | None) -> Forward:
    if taken is None:
        return _ThenRounded(FusedConvolution(chain, activation), given)
    return _QuantizedConvolution(chain, activation, taken, mean, given)


def _check_processor(device: torch.device) -> None:
    """Without these instructions sums of bytes may saturate, and vectors would depend on the processor."""
    capabilities = torch.cpu.get_capabilities()
    if device.type != "cpu" or not (capabilities.get("avx512_vnni") or capabilities.get("avx_vnni")):
        what = "this processor has none" if device.type == "cpu" else f"the device is {device}"
        raise ValueError(f"precision int8 needs a CPU with VNNI instructions, {what}: use --precision 32")


class Grid:
    """What the bytes of a map mean, channel by channel: (byte − zero) · step."""

    def __init__(self, step: Tensor, zero: Tensor) -> None:
        self.step, self.zero = step, zero  # (C,) each; zero is 0 where values are not negative
        self._factor, self._shift = (1 / step).numpy(), (zero + 0.5).numpy()

    def rounded(self, maps: Tensor) -> Tensor:
        """Maps (n, C, H, W) as bytes, channels last."""
        rows = maps.permute(0, 2, 3, 1).contiguous()
        found = torch.empty(rows.shape, dtype=torch.uint8)
        shape = (-1, rows.shape[3])
        _round(rows.numpy().reshape(shape), self._factor, self._shift, found.numpy().reshape(shape))
        return found.permute(0, 3, 1, 2)

    def values(self, maps: Tensor) -> Tensor:
        """What `rounded` gave, in float32."""
        return (maps.float() - self.zero[:, None, None]) * self.step[:, None, None]


@njit(cache=True, nogil=True)
def _round(rows: NDArray[np.float32], factor: NDArray[np.float32], shift: NDArray[np.float32], found: NDArray[np.uint8]) -> None:
    for r in range(len(rows)):
        for c in range(len(factor)):
            found[r, c] = np.uint8(np.int32(min(max(rows[r, c] * factor[c] + shift[c], np.float32(0)), np.float32(255))))


@dataclass(frozen=True, eq=False)
class _Input:
    """Of the maps that a convolution takes, channel by channel. (C,) each"""

    mean: Tensor
    deviation: Tensor


def _expected_inputs(network: nn.Module, names: list[str], images: Tensor) -> dict[str, _Input]:
    """What the named convolutions take when every batch normalization gives noise of its own mean and standard deviation."""
    generator, found = torch.Generator().manual_seed(0), {}

    def noise(norm: Any, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        bias, weight = (tensor[:, None, None] for tensor in (norm.bias, norm.weight))
        values: Tensor = bias + weight.abs() * torch.randn(output.shape, generator=generator)
        return norm.act(values) if getattr(norm, "act", None) is not None else values

    def keep(name: str, maps: Tensor) -> None:
        over = (0, 2, 3)
        found[name] = _Input(maps.mean(over), maps.std(over))

    hooks = [
        module.register_forward_hook(noise)
        for module in network.modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.affine
    ]
    hooks += [
        network.get_submodule(name).register_forward_pre_hook(lambda _, inputs, name=name: keep(name, inputs[0]))
        for name in names
    ]
    try:
        feature_maps(network, images.new_zeros(_N_NOISE, *images.shape[1:]))
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _grid(chain: Chain, taken: _Input, before: Chain | None) -> Grid | None:
    """The grid of what the chain takes; None for the images themselves, and where padding would need a byte that means zero."""
    if before is not None and isinstance(before.activation, nn.ReLU6):
        return Grid(torch.full_like(taken.mean, 6 / _LARGEST), torch.zeros_like(taken.mean))
    if any(chain.padding()[0]) or not bool((taken.deviation > 0).any()):
        return None
    step = 2 * _REACH * taken.deviation / _LARGEST
    step = step.clamp_min(float(step.max()) / 100)  # a channel that its statistics call constant may still hold a surprise
    return Grid(step, _LARGEST / 2 - taken.mean / step)


class _QuantizedConvolution:
    """A chain in one call of oneDNN's convolution of bytes, for maps of the size seen; in float32 for others."""

    def __init__(self, chain: Chain, activation: nn.Module | None, taken: Grid, mean: Tensor, given: Grid | None) -> None:
        self.chain, self.activation, self.taken, self.given = chain, activation, taken, given
        convolution = chain.convolution
        self.stride, self.dilation, self.groups = convolution.stride, convolution.dilation, convolution.groups
        self.padding, around = chain.padding()
        self.operation = ("none", []) if activation is None or given is not None else ACTIVATIONS[type(activation)]
        weight, bias = folded(convolution, chain.norm, torch.float64)
        weight = pad(weight, around)
        self._per_group = weight.shape[1]
        weight = weight * self._by_output(taken.step.double(), len(bias))[:, :, None, None]
        if given is not None:  # its steps are the unit of the output, and bytes end where the activation does
            weight, bias = weight / given.step.double()[:, None, None, None], bias / given.step.double()
        scale = weight.abs().amax((1, 2, 3)).clamp_min(1e-30) / _LARGEST_WEIGHT
        rounded = (weight / scale[:, None, None, None]).round()
        expected = (mean.double() / taken.step.double()) + taken.zero.double()  # bytes
        error = weight - rounded * scale[:, None, None, None]
        bias = bias + (error.sum((2, 3)) * self._by_output(expected, len(bias))).sum(1)
        bias = bias - (weight.sum((2, 3)) * self._by_output(taken.zero.double(), len(bias))).sum(1)
        self.bytes, self.scale, self.bias = rounded.to(torch.int8), scale.float(), bias.float()
        self.no_offset = torch.zeros(len(bias), dtype=torch.int32)
        self.weight = self._laid_out()

    def __call__(self, maps: Tensor) -> Tensor:
        in_bytes = maps.dtype == torch.uint8
        is_usual = maps.shape[2:] == self.chain.maps.shape[2:] and (in_bytes or maps.dtype == torch.float32)
        if not is_usual or torch.is_autocast_enabled("cpu"):
            found = self.chain.one_by_one(self.taken.values(maps) if in_bytes else maps, self.activation)
            return found if self.given is None else self.given.rounded(found)
        name, numbers = self.operation
        output: Tensor = torch.ops.onednn.qconv2d_pointwise(
            maps if in_bytes else self.taken.rounded(maps),
            1.0,
            0,
            self.weight,
            self.scale,
            self.no_offset,
            self.bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            1.0,
            0,
            torch.float32 if self.given is None else torch.uint8,
            name,
            numbers,
            "",
        )
        return output

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "weight": None}  # oneDNN's layout cannot be copied or pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.weight = self._laid_out()

    def _by_output(self, of_input: Tensor, n_outputs: int) -> Tensor:
        """A number for each input channel → (n_outputs, input channels of a group), as the weights are."""
        groups = of_input.reshape(self.groups, 1, self._per_group)
        return groups.expand(-1, n_outputs // self.groups, -1).reshape(n_outputs, self._per_group)

    def _laid_out(self) -> Tensor:
        found: Tensor = torch.ops.onednn.qconv_prepack(
            self.bytes, self.scale, 1.0, 0, self.stride, self.padding, self.dilation, self.groups, list(self.chain.maps.shape)
        )
        return found


class _ThenRounded:
    """A fused convolution in float32 whose output the next one takes in bytes."""

    def __init__(self, convolution: FusedConvolution, given: Grid | None) -> None:
        self.convolution, self.given = convolution, given

    def __call__(self, maps: Tensor) -> Tensor:
        found = self.convolution(maps)
        return found if self.given is None else self.given.rounded(found)
