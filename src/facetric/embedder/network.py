"""`Network`: backbone → pooling → linear head, with a first part that can be frozen and run apart."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self, get_args

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from facetric.embedder.fused_training import fused
from facetric.embedder.heads import fill_head
from facetric.embedder.split import Halves, feature_maps, split_after
from facetric.images import CenterCrop, Crop, Preprocessing

WHOLE = "all"  # freeze_through: the whole backbone
_building = threading.Lock()
Pooling = Literal["average", "gem"]
_POWER, _LEAST = 3.0, 1e-6
_AVERAGES = ("global_pool", "avgpool")  # the module that averages: timm's name, torchvision's


class Network(nn.Module):
    """Images (m, C, H, W) → embeddings (m, dim). Made by `build_network`, which says what the options mean.

    With `freeze_through`, the dotted name of a module of the backbone, everything up to that module is frozen (the position
    embedding and class tokens of a vision transformer too): no gradients, always in eval mode, and `network(x)` equals
    `network.from_activations(network.trunk(x))`, so that the activations of the frozen part can be cached.
    `freeze_through="all"` freezes the whole backbone, and its pooled features are the activations: only the head is trained.
    With `freeze_batchnorm` the running statistics of the whole backbone stay as they are.
    """

    def __init__(
        self,
        backbone: nn.Module,
        preprocessing: Preprocessing,
        *,
        name: str,
        dim: int | None = 64,
        normalize: bool = True,
        freeze_through: str | None = None,
        freeze_batchnorm: bool = True,
        normalize_features: bool = False,
        pooling: Pooling = "average",
    ) -> None:
        super().__init__()
        if dim is not None and dim < 1:
            raise ValueError(
                f"dim, the length of an embedding, must be at least 1; got {dim}: 64 is the paper's (--set model.dim=64)"
            )
        if pooling not in get_args(Pooling):
            raise ValueError(
                f"pooling must be one of {', '.join(get_args(Pooling))}; got {pooling!r}: choose one of these "
                "(--set model.pooling=gem)"
            )
        self.name, self.preprocessing, self.pooling = name, preprocessing, pooling
        self.crop: Crop = CenterCrop(preprocessing)  # what it sees of an image when nothing is random
        self.normalize, self.normalize_features = normalize, normalize_features
        self.freeze_through, self.freeze_batchnorm = freeze_through, freeze_batchnorm
        self._is_constant = False  # whether it is a copy for inference
        self._passes: dict[bool, tuple[nn.Module, Halves | None]] = {}  # in training mode, and in eval mode
        if pooling == "gem":
            _pool_by_gem(backbone, name)
        self.backbone = backbone.to(memory_format=torch.channels_last).eval()
        probe = self._probe()
        self._split = None if freeze_through in (None, WHOLE) else split_after(self.backbone, str(freeze_through), probe)
        self._frozen = [""] if freeze_through == WHOLE else [] if self._split is None else list(self._split.first)
        with torch.no_grad():
            self.n_features: int = self._pooled(feature_maps(self.backbone, _channels_last(probe))).shape[1]
        self.dim: int = self.n_features if dim is None else dim
        self.head = nn.Identity() if dim is None else nn.Linear(self.n_features, dim)
        frozen = self.trunk_state()
        for parameter_name, parameter in self.backbone.named_parameters():
            if parameter_name in frozen:
                parameter.requires_grad_(False)
        self.train()

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return next((parameter.device for parameter in self.parameters()), torch.device("cpu"))

    def forward(self, images: Tensor) -> Tensor:
        """Images (m, C, H, W) → embeddings (m, dim)"""
        return self.from_activations(self.trunk(images))

    def features(self, images: Tensor) -> Tensor:
        """Images (m, C, H, W) → pooled features of the backbone (m, n_features)"""
        return self.features_from_activations(self.trunk(images))

    def trunk(self, images: Tensor) -> Tensor:
        """Images → activations of the frozen first part, without gradients; the images themselves when nothing is frozen."""
        if self.freeze_through is None:
            return images
        with torch.no_grad():
            backbone, halves = self._backbone_passes()
            images = _channels_last(images)
            return self._pooled(feature_maps(backbone, images)) if halves is None else halves.first(images)

    def from_activations(self, activations: Tensor) -> Tensor:
        """Activations of the frozen first part → embeddings (m, dim)"""
        features = self.features_from_activations(activations)
        embeddings: Tensor = self.head(nn.functional.normalize(features, dim=1) if self.normalize_features else features)
        return nn.functional.normalize(embeddings, dim=1) if self.normalize else embeddings

    def features_from_activations(self, activations: Tensor) -> Tensor:
        """Activations of the frozen first part → pooled features (m, n_features)"""
        if self.freeze_through == WHOLE:
            return activations
        activations = _channels_last(activations)
        backbone, halves = self._backbone_passes()
        return self._pooled(feature_maps(backbone, activations) if halves is None else halves.second(activations))

    def for_inference(self) -> Network:
        """A copy to encode many images with, which shares the modules; this network must be in eval mode and stay as it is.

        On a CPU its convolutions are fused (`fused_training.py`), about twice as fast for the default backbone, and its vectors
        are equal up to rounding.
        """
        if self._is_constant:
            return self
        other = copy.copy(self)
        other._is_constant = True
        return other

    def trunk_state(self) -> dict[str, Tensor]:
        """The tensors that decide what `trunk` gives, by name; empty when nothing is frozen."""
        modules = tuple(f"{name}." if name else "" for name in self._frozen)
        others = () if self._split is None else self._split.tensors
        state = self.backbone.state_dict()
        return {name: tensor for name, tensor in state.items() if name.startswith(modules) or name in others}

    def with_head(
        self,
        features: ArrayLike | Tensor | None = None,
        labels: ArrayLike | None = None,
        *,
        kind: str = "whitened",
        seed: int = 0,
        scale: float = 1.0,
    ) -> Self:
        """The same network, whose backbone it shares, with another head.

        "pca" is the half-whitened PCA of its training features (n, n_features), "whitened" takes their labels too and features of
        length one; "orthogonal" (orthonormal rows, no bias) and torch's "default" come from the seed. Values are times `scale`.
        """
        if not isinstance(self.head, nn.Linear):
            raise ValueError("this network has no head to fill: build it with dim, the length of an embedding")
        other = copy.copy(self)
        other._modules, other._passes = dict(self._modules), self._passes
        other.head = copy.deepcopy(self.head)
        fill_head(other.head, features, labels, kind=kind, seed=seed)
        with torch.no_grad():
            for values in other.head.parameters():
                values.mul_(scale)
        other.normalize_features = kind == "whitened"
        return other

    def interpolated(self, backbone: Mapping[str, Tensor], fraction: float) -> Self:
        """The same head on (1 − fraction)·this backbone + fraction·other weights of it, given by name."""
        other = copy.copy(self)
        other._modules, other._passes = {**self._modules, "backbone": copy.deepcopy(self.backbone)}, {}
        with torch.no_grad():
            for name, tensor in other.backbone.state_dict().items():
                if tensor.is_floating_point():
                    tensor.lerp_(backbone[name], fraction)
        return other

    def train(self, mode: bool = True) -> Self:
        """Training mode, except for the frozen part and, with `freeze_batchnorm`, for batch normalization."""
        super().train(mode)
        if self.freeze_batchnorm:
            for module in self.backbone.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        for name in self._frozen:
            self.backbone.get_submodule(name).eval()
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_passes": {}}  # made again when they are needed

    def _backbone_passes(self) -> tuple[nn.Module, Halves | None]:
        """The backbone and its parts in this mode, built once: fused on a CPU, except where batch normalization is trained."""
        with _building:
            if self.training not in self._passes:
                with torch.inference_mode(False):
                    is_fused = self.device.type == "cpu" and (self._is_constant or (self.training and self.freeze_batchnorm))
                    probe, backbone = _channels_last(self._probe()), self.backbone
                    if is_fused:
                        backbone = fused(backbone, probe, apart=self.freeze_through, constant=self._is_constant)
                    halves = None if self._split is None else Halves(backbone, self._split)
                    self._passes[self.training] = backbone, halves
            return self._passes[self.training]

    def _probe(self) -> Tensor:
        """An image of noise to try the network on."""
        form = self.preprocessing
        shape = getattr(form, "input_shape", (form.channels, form.crop, form.crop))  # that of a transform, if there is one
        return torch.randn(1, *shape, generator=torch.Generator().manual_seed(0))

    def _pooled(self, maps: Tensor) -> Tensor:
        pool: Callable[..., Tensor] = self.backbone.forward_head  # type: ignore[assignment]
        return pool(maps, pre_logits=True)


def _channels_last(values: Tensor) -> Tensor:
    """The order in which convolutions on a CPU are fastest, by 1.4 times for the default backbone."""
    return values.contiguous(memory_format=torch.channels_last) if values.ndim == 4 else values


class GeM(nn.Module):
    """Generalized mean (Radenović, Tolias and Chum 2018), with a fixed power.

        f_c = (1/hw · Σ x_c³)^(1/3),   x at least 10⁻⁶

    A power of 1 is the average, ∞ the maximum. It has no parameters.
    """

    def __init__(self, *, flat: bool) -> None:
        super().__init__()
        self.flat = flat

    def forward(self, maps: Tensor) -> Tensor:
        """(m, C, h, w) → (m, C), or (m, C, 1, 1) unless `flat`"""
        pooled = maps.clamp(min=_LEAST).pow(_POWER).mean(dim=(2, 3), keepdim=True).pow(1 / _POWER)
        return pooled.flatten(1) if self.flat else pooled


def _pool_by_gem(network: nn.Module, name: str) -> None:
    """Put GeM in the place of the average over the whole image; a ValueError if the network has none."""
    places = [place for place, module in network.named_modules() if place.rpartition(".")[2] in _AVERAGES and _averages(module)]
    if len(places) != 1:
        raise ValueError(
            f"{name} does not average its last maps over the image, so there is nothing that GeM can replace: use its own "
            "pooling (--set model.pooling=average)"
        )
    parent, _, attribute = places[0].rpartition(".")
    flat = isinstance(getattr(network.get_submodule(places[0]), "flatten", None), nn.Flatten)  # timm's may flatten too
    setattr(network.get_submodule(parent), attribute, GeM(flat=flat))


def _averages(module: nn.Module) -> bool:
    """timm's pooling knows its kind; torchvision's is torch's own."""
    if isinstance(module, nn.AdaptiveAvgPool2d):
        return module.output_size in (1, (1, 1))
    return getattr(module, "pool_type", None) == "avg"
