"""`network_facts`: what a run on somebody's photos has to know of a network: lengths, sizes, where it may be cut."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch

from facetric.embedder.backbones import build_network
from facetric.embedder.network import WHOLE
from facetric.embedder.networks import named_network


@dataclass(frozen=True)
class NetworkFacts:
    """Of a backbone with random weights at its own image size."""

    name: str  # the short one where it has one
    backbone: str  # as it is written down
    weights: str | None  # "packaged" or "hub", or None for its own default
    image_size: int | None  # None for its own default
    crop: int
    n_features: int
    averages: bool  # whether it was trained with the average of its maps
    is_transformer: bool
    freeze_through: str  # the last module that stays as it is when the rest is fine-tuned
    view_bytes: int  # of the activations behind it, in float16


def network_facts(backbone: str) -> NetworkFacts:
    """By the name of the network. Stages before the last one stay as they are, of a transformer all blocks but two.

    A network that cannot be cut there stays as it is as a whole.
    """
    return _facts(backbone)


@lru_cache
def _facts(backbone: str) -> NetworkFacts:
    row = named_network(backbone)
    name, image_size = (row.recorded, row.image_size) if row else (backbone, None)
    options: dict[str, Any] = {"dim": None, "weights": "none", "image_size": image_size, "size": 1024}
    network = build_network(name, **options)
    place = row.freeze_through if row else _before_the_last(network.backbone)
    try:
        network = build_network(name, freeze_through=place, **options)
    except ValueError:
        place = WHOLE
        network = build_network(name, freeze_through=place, **options)
    form, packaged = network.preprocessing, row is not None and row.package is not None
    downloaded = row is not None and packaged and find_spec(row.module) is None and row.is_here
    return NetworkFacts(
        name=row.name if row else backbone,
        backbone=name,
        weights="hub" if downloaded else "packaged" if packaged else None,
        image_size=None if packaged else image_size,
        crop=form.crop,
        n_features=network.n_features,
        averages=row is not None and row.pooling == "average",
        is_transformer=hasattr(network.backbone, "patch_embed"),
        freeze_through=place,
        view_bytes=2 * network.eval().trunk(torch.zeros(1, form.channels, form.crop, form.crop)).numel(),
    )


def _before_the_last(backbone: torch.nn.Module) -> str:
    """The module behind the last but one stage or, where no stage halves the image, behind the last but two blocks."""
    stages: Any = [stage for stage in getattr(backbone, "feature_info", ()) if "module" in stage]
    are_blocks = len({stage["reduction"] for stage in stages}) == 1
    return str(stages[-3 if are_blocks else -2]["module"]) if len(stages) > 2 else WHOLE
