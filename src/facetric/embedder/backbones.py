"""Backbones by name: any of timm's, torchvision's googlenet (the paper's Inception with batch normalization), our glyphnet.

All of them have timm's two methods: `forward_features(images)` gives maps, `forward_head(maps, pre_logits=True)` pools them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models import GoogLeNet as TorchvisionGoogLeNet  # type: ignore[import-untyped]

from facetric.embedder.glyphnet import GlyphNet
from facetric.embedder.input_spec import InputSpec


class GoogLeNet(TorchvisionGoogLeNet):
    """torchvision's, without the classifiers, at the paper's crop of 227.

    Images are normalized as (v/255 − 0.5) / 0.5, which is what torchvision's `transform_input` does inside the network.
    """

    feature_info = ({"reduction": 32},)  # as timm tells a network's stride

    def __init__(self) -> None:
        super().__init__(num_classes=1, aux_logits=False, transform_input=False, init_weights=True)
        del self.fc, self.dropout

    def forward_features(self, images: Tensor) -> Tensor:
        """(m, 3, h, w) → (m, 1024, ⌈h/32⌉, ⌈w/32⌉)"""
        maps = self.maxpool1(self.conv1(images))
        maps = self.maxpool2(self.conv3(self.conv2(maps)))
        maps = self.maxpool3(self.inception3b(self.inception3a(maps)))
        maps = self.inception4c(self.inception4b(self.inception4a(maps)))
        maps = self.maxpool4(self.inception4e(self.inception4d(maps)))
        last: Tensor = self.inception5b(self.inception5a(maps))
        return last

    def forward_head(self, maps: Tensor, *, pre_logits: bool = True) -> Tensor:
        """Averaged over the picture, (m, 1024); `pre_logits` is there for timm's signature."""
        pooled: Tensor = self.avgpool(maps)
        return pooled.flatten(1)


OWN: dict[str, tuple[type[nn.Module], InputSpec]] = {
    "glyphnet": (GlyphNet, InputSpec(size=32, channels=1, mean=(0.5,), std=(0.5,))),
    "googlenet": (GoogLeNet, InputSpec(size=227, channels=3, mean=(0.5,) * 3, std=(0.5,) * 3)),
}


def create_backbone(name: str, *, image_size: int | None = None) -> tuple[nn.Module, InputSpec]:
    """The network with random weights (torch's global generator draws them) and the images it expects.

    `image_size`, the side of its square input, is the network's own unless given; a ValueError if it cannot take that.
    """
    _check_name(name)
    if image_size is None:
        return _built(name)
    try:
        network, spec = _built(name, image_size)
        reason = _misfit(network, spec)
    except Exception as error:  # a network can raise nearly anything at a size that it was not made for
        reason = str(error).split("\n", maxsplit=1)[0] or type(error).__name__
    if reason:
        raise ValueError(
            f"{name} cannot take images of {image_size} pixels, {reason}: choose another size (--set model.image_size=…)"
        )
    return network, spec


def _check_name(name: str) -> None:
    if name in OWN:
        return
    import timm

    if not timm.is_model(name):
        near = get_close_matches(name, [*OWN, *timm.list_models()], n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "timm.list_models() lists them"
        raise ValueError(
            f"backbone must be a model of timm, googlenet or glyphnet; got {name!r}: {hint} (--set model.backbone=…)"
        )


def _built(name: str, image_size: int | None = None) -> tuple[nn.Module, InputSpec]:
    if name in OWN:
        network, spec = OWN[name]
        return network(), replace(spec, size=image_size or spec.size)
    import timm

    settings = timm.get_pretrained_cfg(name)
    # Where position embeddings, windows and the like depend on the size, timm has to know it.
    depends = image_size is not None and settings is not None and settings.fixed_input_size
    options: dict[str, Any] = {"img_size": image_size} if depends else {}
    made: nn.Module = timm.create_model(name, pretrained=False, num_classes=0, **options)
    expected = made.pretrained_cfg
    assert isinstance(expected, dict)
    channels, size, _ = expected["input_size"]
    return made, InputSpec(image_size or size, channels, mean=tuple(expected["mean"]), std=tuple(expected["std"]))


def _misfit(network: nn.Module, spec: InputSpec) -> str | None:
    """Why the network cannot take these images; None if it can, an exception of its own if it fails on them."""
    patches: Any = getattr(network, "patch_embed", None)
    patch = patches.patch_size[0] if type(patches).__name__ == "PatchEmbed" else 1  # timm's; others may pad, or overlap
    if rest := spec.size % patch:
        below = spec.size - rest
        multiples = " or ".join(str(size) for size in (below, below + patch) if size)
        return f"which is not a multiple of its patch size {patch} ({multiples} would be)"
    stages = getattr(network, "feature_info", ())
    stride = max((int(stage["reduction"]) for stage in stages), default=1)
    if spec.size < stride:
        return f"which is below its stride {stride}"
    forward_features: Callable[[Tensor], Tensor] = network.eval().forward_features  # type: ignore[assignment]
    with torch.no_grad():
        forward_features(torch.zeros(1, spec.channels, spec.size, spec.size))
    return None
