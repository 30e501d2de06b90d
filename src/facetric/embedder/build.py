"""`build_network`: from a backbone's name to a network."""

from __future__ import annotations

from pathlib import Path

import torch

from facetric.embedder.backbones import create_backbone
from facetric.embedder.network import Network
from facetric.embedder.pooling import Pooling
from facetric.embedder.weights import default_weights, load_weights


def build_network(
    name: str = "tf_efficientnet_lite0",
    *,
    dim: int = 64,
    weights: str | Path | None = None,
    image_size: int | None = None,
    normalize: bool = True,
    freeze_through: str | None = None,
    normalize_features: bool = False,
    pooling: Pooling = "average",
    seed: int = 0,
) -> Network:
    """A network with `dim` dimensions, in training mode.

    * `name`: any model of timm, "googlenet" (the paper's) or "glyphnet" (small grayscale pictures);
    * `weights`: "packaged", "hub", a file (safetensors or a state dict), "none", or None for the backbone's own default;
    * `image_size`: the side of the square input in pixels, the backbone's own unless given; position embeddings in weights of
      another size are resampled;
    * `normalize`: whether embeddings have length 1, as the facility location and triplet losses expect;
    * `freeze_through`: the module up to which the backbone is frozen, for example "blocks.4";
    * `normalize_features`: whether the head takes features of length one, as a whitened head does;
    * `pooling`: "average", the network's own, or "gem", a power mean over the picture that fine-grained classes gain from;
    * `seed`: of the head, and of the backbone with weights "none"; torch's global generator is not touched.

    Batch-norm statistics are frozen unless the weights are "none".
    """
    weights = default_weights(name) if weights is None else weights
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        backbone, input_spec = create_backbone(name, image_size=image_size)
        if weights != "none":
            load_weights(backbone, name, weights)
        return Network(
            backbone,
            input_spec,
            name=name,
            dim=dim,
            normalize=normalize,
            freeze_through=freeze_through,
            freeze_batchnorm=weights != "none",
            normalize_features=normalize_features,
            pooling=pooling,
        )
