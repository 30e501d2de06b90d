"""What a backbone expects of its images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from facetric.images import PreparedImages, Preprocessing
from facetric.images.sources import Images


@dataclass(frozen=True)
class InputSpec:
    """Square crops of `size` pixels with `channels` channels, values (v/255 − mean) / std per channel."""

    size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.size < 1 or self.channels < 1:
            raise ValueError(f"size and channels must be at least 1; got {self.size} and {self.channels}: pass the backbone's")
        if not len(self.mean) == len(self.std) == self.channels or min(self.std) <= 0:
            raise ValueError(
                f"mean and std need {self.channels} numbers each, and std positive ones; got {self.mean} and {self.std}: "
                "pass those of the backbone"
            )


def image_format(spec: InputSpec, images: Images, *, size: int | None = None) -> Preprocessing:
    """The backbone's crops from these images; files are resized to `size` first (256, or a larger crop, unless given)."""
    if isinstance(images, PreparedImages):
        size = images.pixels.shape[1]
    elif isinstance(images, np.ndarray):
        size = min(images.shape[1:3])
    elif size is None:
        size = max(256, spec.size)
    if size < spec.size:
        larger = "data.pad=…" if isinstance(images, np.ndarray) else f"data.size={2 * round(4 / 7 * spec.size)}"
        raise ValueError(
            f"images of {size} pixels are smaller than the backbone's crop ({spec.size}): enlarge them (--set {larger}) or "
            f"shrink the crop (--set model.image_size={min(size, 224)})"
        )
    return Preprocessing(size=size, crop=spec.size, mean=spec.mean, std=spec.std, channels=spec.channels)
