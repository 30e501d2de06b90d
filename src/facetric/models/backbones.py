"""Backbones by name: any of timm's, torchvision's googlenet (the paper's Inception with batch normalization), our glyphnet.

All of them have timm's two methods: `forward_features(images)` gives maps, `forward_head(maps, pre_logits=True)` pools them.
"""

from __future__ import annotations

from difflib import get_close_matches

from torch import Tensor, nn
from torchvision.models import GoogLeNet as TorchvisionGoogLeNet  # type: ignore[import-untyped]

from facetric.models.glyphnet import GlyphNet
from facetric.models.input_spec import InputSpec


class GoogLeNet(TorchvisionGoogLeNet):
    """torchvision's, without the classifiers, at the paper's crop of 227.

    torchvision's `transform_input` turns images normalized for ImageNet into (v/255 − 0.5) / 0.5; here images come like this.
    """

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
        """Averaged over the picture, (m, 1024); `pre_logits` is timm's, and there are no logits here."""
        pooled: Tensor = self.avgpool(maps)
        return pooled.flatten(1)


def create_backbone(name: str) -> tuple[nn.Module, InputSpec]:
    """The network with random weights (torch's global generator draws them) and the images it expects."""
    if name == "glyphnet":
        return GlyphNet(), InputSpec(size=32, channels=1, mean=(0.5,), std=(0.5,))
    if name == "googlenet":
        return GoogLeNet(), InputSpec(size=227, channels=3, mean=(0.5,) * 3, std=(0.5,) * 3)
    import timm

    if not timm.is_model(name):
        near = get_close_matches(name, ["glyphnet", "googlenet", *timm.list_models()], n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "timm.list_models() lists them"
        raise ValueError(f"backbone must be a model of timm, googlenet or glyphnet; got {name!r}: {hint}")
    network: nn.Module = timm.create_model(name, pretrained=False, num_classes=0)
    settings = network.pretrained_cfg
    assert isinstance(settings, dict)
    channels, size, _ = settings["input_size"]
    return network, InputSpec(size=size, channels=channels, mean=tuple(settings["mean"]), std=tuple(settings["std"]))
