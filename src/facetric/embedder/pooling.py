"""How the last maps of a network become one vector: their average, or a power mean that looks at where a channel is strong."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

Pooling = Literal["average", "gem"]
_POWER, _LEAST = 3.0, 1e-6
_AVERAGES = ("global_pool", "avgpool")  # the module that averages: timm's name, torchvision's


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


def pool_by_gem(network: nn.Module, name: str) -> None:
    """Put GeM in the place of the average over the whole picture; a ValueError if the network has none."""
    places = [place for place, module in network.named_modules() if _averages(place, module)]
    if len(places) != 1:
        raise ValueError(
            f"{name} does not average its last maps over the picture, so there is nothing that GeM can replace: use its own "
            "pooling (--set model.pooling=average)"
        )
    parent, _, attribute = places[0].rpartition(".")
    flat = isinstance(getattr(network.get_submodule(places[0]), "flatten", None), nn.Flatten)  # timm's may flatten too
    setattr(network.get_submodule(parent), attribute, GeM(flat=flat))


def _averages(place: str, module: nn.Module) -> bool:
    """timm's pooling knows its kind; torchvision's is torch's own."""
    if place.rpartition(".")[2] not in _AVERAGES:
        return False
    if isinstance(module, nn.AdaptiveAvgPool2d):
        return module.output_size in (1, (1, 1))
    return getattr(module, "pool_type", None) == "avg"
