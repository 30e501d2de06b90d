"""A small convolutional network for grayscale pictures of 32 to 48 pixels, to be trained from scratch on a CPU."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

WIDTHS = (32, 64, 128, 256)
POOLED = 2  # features are averages over the four quarters of the picture: where a stroke is tells characters apart


class GlyphNet(nn.Module):
    """A stem at full size, then three stages that double the channels and halve the picture; pooled over its quarters.

    Images (m, 1, h, w) → features (m, 4 · 256). It has timm's two methods, `forward_features` and `forward_head`.
    """

    feature_info = ({"reduction": 8},)  # as timm tells a network's stride

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_convolution(1, WIDTHS[0]), *_convolution(WIDTHS[0], WIDTHS[0]))
        self.stages = nn.Sequential(*(_stage(before, after) for before, after in pairwise(WIDTHS)))
        self.pool = nn.AdaptiveAvgPool2d(POOLED)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")  # the untrained network keeps its signal

    def forward_features(self, images: Tensor) -> Tensor:
        """(m, 1, h, w) → (m, 256, ⌊h/8⌋, ⌊w/8⌋)"""
        features: Tensor = self.stages(self.stem(images))
        return features

    def forward_head(self, maps: Tensor, *, pre_logits: bool = True) -> Tensor:
        """Pooled and flattened, (m, 4 · 256); `pre_logits` is there for timm's signature."""
        pooled: Tensor = self.pool(maps)
        return pooled.flatten(1)


def _stage(n_before: int, n_after: int) -> nn.Sequential:
    return nn.Sequential(nn.MaxPool2d(2), *_convolution(n_before, n_after), *_convolution(n_after, n_after))


def _convolution(n_before: int, n_after: int) -> list[nn.Module]:
    return [nn.Conv2d(n_before, n_after, 3, padding=1, bias=False), nn.BatchNorm2d(n_after), nn.ReLU()]
