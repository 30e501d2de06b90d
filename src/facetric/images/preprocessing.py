"""From decoded images to the input of a backbone: the paper's crops (its Section 5), in batches, with explicit randomness.

The paper resizes to 256×256 without keeping the aspect ratio, then takes a random 227×227 crop, flipped or not, to train and
the central one to test. People's photos keep their proportions: the ends of the longer side are cut off. Cropping, flipping,
normalizing and the change to channels-first are one pass over the pixels, and the pass reads straight from a memory-mapped file.

The randomness of an image is `n_draws` numbers in [0, 1). `crop(images, rng)` draws them; `crop.apply(images, draws)` takes
them, so that a process with a share of a batch can use its share of the draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numba import njit
from numpy.typing import NDArray
from PIL import Image

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
Fit: TypeAlias = Literal["stretch", "crop"]


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """How an image of any size becomes what a network was trained on.

    It is stretched to `size` × `size` or, if `fit` is "crop", its central square is resized to that (an image in memory keeps the
    size it has). It gets `pad` black pixels on every side, and is cropped to `crop` × `crop` pixels of `channels` channels with
    values (v/255 − mean) / std.
    """

    size: int = 256
    pad: int = 0
    crop: int = 227
    channels: int = 3
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    fit: Fit = "stretch"

    def __post_init__(self) -> None:
        for name in ("mean", "std"):  # lists where they come from JSON
            object.__setattr__(self, name, tuple(float(value) for value in getattr(self, name)))
        if self.pad < 0 or self.crop < 1 or self.size < 1:
            raise ValueError(
                f"size and crop must be at least 1 and pad at least 0; got {self.size}, {self.crop} and {self.pad}: 256, 227 "
                "and 0 are the paper's"
            )
        if self.crop > self.size + 2 * self.pad:
            larger = "data.pad=…" if self.pad else f"data.size={2 * round(4 / 7 * self.crop)}"
            raise ValueError(
                f"images of {self.size + 2 * self.pad} pixels are smaller than the backbone's crop ({self.crop}): enlarge them "
                f"(--set {larger}) or shrink the crop (--set model.image_size={min(self.size, 224)})"
            )
        if self.fit not in get_args(Fit):
            raise ValueError(
                f"fit must be {' or '.join(get_args(Fit))}; got {self.fit!r}: crop keeps the proportions (--set data.fit=crop)"
            )
        if self.channels not in (1, 3):
            raise ValueError(f"channels must be 1 (gray) or 3 (RGB); got {self.channels}: choose one of these")
        if len(self.mean) != self.channels or len(self.std) != self.channels:
            raise ValueError(
                f"mean and std need one number per channel ({self.channels}); got {len(self.mean)} and {len(self.std)}: "
                "pass those of the backbone"
            )
        if min(self.std) <= 0:
            raise ValueError(f"std must be above 0, values are divided by it; got {self.std}: pass that of the backbone")

    @property
    def at_least(self) -> int:
        """A JPEG may be decoded at a fraction of its size that leaves this many pixels on each side."""
        return 2 * self.size

    def pixels(self, image: Image.Image) -> NDArray[np.uint8]:
        """An upright image as (size, size, channels), before padding and cropping: bilinear, antialiased."""
        converted, square, box = image.convert("RGB" if self.channels == 3 else "L"), (self.size, self.size), None
        if self.fit == "crop":
            side, (left, top) = min(image.size), ((length - min(image.size)) / 2 for length in image.size)
            box = (left, top, left + side, top + side)
        resized = converted.resize(square, Image.Resampling.BILINEAR, box)
        return np.asarray(resized).reshape(self.size, self.size, self.channels)

    @property
    def fitted(self) -> str:
        """In words, how an image of any proportions becomes a square."""
        return "stretched" if self.fit == "stretch" else "its central square resized"

    def values(self) -> NDArray[np.float32]:
        """The normalized value of every pixel value, (channels, 256), rounded as torchvision's ToTensor and Normalize do."""
        mean = np.array(self.mean, dtype=np.float32)[:, None]
        std = np.array(self.std, dtype=np.float32)[:, None]
        table: NDArray[np.float32] = (np.arange(256, dtype=np.float32) / np.float32(255) - mean) / std
        return table


@dataclass(frozen=True)
class Crop:
    """Images (n, height, width) or (n, height, width, channels) uint8 → float32 (n, channels, crop, crop). It is abstract."""

    preprocessing: Preprocessing = Preprocessing()
    n_draws: ClassVar[int] = 0  # how many random numbers an image takes

    def __call__(self, images: NDArray[np.uint8], rng: np.random.Generator | None = None) -> NDArray[np.float32]:
        """Crop all images with numbers drawn from `rng`."""
        return self.apply(images, None if rng is None else rng.random((len(images), self.n_draws)))

    def apply(
        self, images: NDArray[np.uint8], draws: NDArray[np.float64] | None = None, *, rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.float32]:
        """Crop images[rows] (all without rows) with draws (n, n_draws), which only a crop without randomness can do without."""
        if images.dtype != np.uint8 or images.ndim not in (3, 4):
            raise ValueError(
                f"images must be uint8 of shape (n, height, width) or (n, height, width, channels); got {images.dtype} of shape "
                f"{images.shape}: pass [None] of a single array"
            )
        form, images = self.preprocessing, images[..., None] if images.ndim == 3 else images
        if images.shape[3] not in (1, form.channels):
            raise ValueError(
                f"images have {images.shape[3]} channels, the preprocessing has {form.channels}: convert them, or pass one with "
                f"{images.shape[3]} channels"
            )
        rows = np.arange(len(images)) if rows is None else rows
        if draws is None and self.n_draws:
            raise ValueError(f"{type(self).__name__} is random: pass draws, {self.n_draws} per image, or use CenterCrop")
        draws = np.empty((len(rows), 0)) if draws is None else draws
        assert len(draws) == len(rows)
        if form.pad:
            side = (form.pad, form.pad)
            images, rows = np.pad(images[rows], ((0, 0), side, side, (0, 0))), np.arange(len(rows))
        height, width = images.shape[1:3]
        if min(height, width) < form.crop:
            raise ValueError(
                f"images of {height}×{width} are smaller than the crop ({form.crop}): resize them (--set data.size=…, or "
                "data.pad=… for images in memory), or lower the crop (--set model.image_size=…)"
            )
        tops, lefts, flipped = self._places(height - form.crop, width - form.crop, draws)
        # NumPy requests huge pages, torch does not; without them page faults cost more than the crops. In memory the channels
        # come last, as the networks take them.
        views = np.empty((len(rows), form.crop, form.crop, form.channels), dtype=np.float32)
        plain = np.asarray(images).view(np.ndarray)  # numba takes plain arrays only, not the memmap subclass
        _crop_kernel(plain, rows, tops.astype(np.int64), lefts.astype(np.int64), flipped, form.values(), views)
        return views.transpose(0, 3, 1, 2)

    def _places(self, down: int, right: int, draws: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
        """Top, left and whether it is flipped, of crops that can move down and to the right by that many pixels."""
        raise NotImplementedError


@dataclass(frozen=True)
class RandomCrop(Crop):
    """The paper's training crop: random position, flipped with probability ½.

    Turn `flip` off where orientation matters: a flipped b is a d.
    """

    flip: bool = True
    n_draws: ClassVar[int] = 3  # top, left, flip

    def _places(self, down: int, right: int, draws: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
        return np.floor(draws[:, 0] * (down + 1)), np.floor(draws[:, 1] * (right + 1)), (draws[:, 2] < 0.5) & self.flip


class CenterCrop(Crop):
    """The paper's test crop: the center (an odd pixel is left at the bottom and right), nothing random."""

    def _places(self, down: int, right: int, draws: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
        n = len(draws)
        return np.full(n, down // 2), np.full(n, right // 2), np.zeros(n, dtype=np.bool_)


@njit(cache=True, nogil=True)
def _crop_kernel(
    images: NDArray[np.uint8],
    rows: NDArray[np.int64],
    tops: NDArray[np.int64],
    lefts: NDArray[np.int64],
    flipped: NDArray[np.bool_],
    values: NDArray[np.float32],
    views: NDArray[np.float32],
) -> None:
    """views[i, y, x, c] = values[c, pixel]; a single channel is repeated for all."""
    crop, n_channels, n_given = views.shape[1], views.shape[3], images.shape[3]
    for i in range(len(rows)):
        image, view = images[rows[i]], views[i]
        for y in range(crop):
            row, top = view[y], tops[i] + y
            for x in range(crop):
                left = lefts[i] + (crop - 1 - x if flipped[i] else x)
                for c in range(n_channels):
                    row[x, c] = values[c, image[top, left, min(c, n_given - 1)]]
