"""Test-time views: the central crop (the paper), or several crops and mirrors whose embeddings are averaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facetric.data import ImageFormat, RandomCrop

VIEWS = {
    1: "centre crop",
    2: "centre crop and its mirror",
    5: "centre and four corner crops",
    10: "centre and four corner crops, and their mirrors",
}
_CENTRE = ((1, 1),)  # halves of the free pixels above and to the left
_CORNERS = ((0, 0), (0, 2), (2, 0), (2, 2))


@dataclass(frozen=True)
class TestViews:
    """All views of each image: n images → (n_views · n, channels, crop, crop), view by view. Nothing is random."""

    __test__: ClassVar[bool] = False  # it is no test, whatever pytest thinks of its name

    format: ImageFormat
    n_views: int = 1
    n_draws: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if self.n_views not in VIEWS:
            offer = "; ".join(f"{n} ({name})" for n, name in VIEWS.items())
            raise ValueError(f"views must be one of {offer}; got {self.n_views}: choose one of these")

    @property
    def name(self) -> str:
        return VIEWS[self.n_views]

    def __call__(self, images: NDArray[np.uint8], rng: np.random.Generator | None = None) -> Tensor:
        return self.apply(images, np.empty((len(images), 0)))

    def apply(self, images: NDArray[np.uint8], draws: NDArray[np.float64], *, rows: NDArray[np.int64] | None = None) -> Tensor:
        crop = RandomCrop(self.format)  # with draws that are not random: it takes ⌊draw · (free + 1)⌋ pixels
        free = [max(side - self.format.crop, 0) for side in images.shape[1:3]]
        places = _CENTRE if self.n_views <= 2 else _CENTRE + _CORNERS
        views = []
        for mirror in (False, True) if self.n_views % 2 == 0 else (False,):
            for place in places:
                top, left = ((pixels * half // 2 + 0.5) / (pixels + 1) for pixels, half in zip(free, place, strict=True))
                fixed = np.tile([top, left, 0.0 if mirror else 1.0], (len(draws), 1))
                views.append(crop.apply(images, fixed, rows=rows))
        return torch.cat(views)


def average_views(vectors: Tensor, n_views: int, *, normalize: bool) -> Tensor:
    """Vectors (n_views · n, d), view by view, → their means (n, d), of length one again if they were."""
    if n_views == 1:
        return vectors
    means = vectors.reshape(n_views, -1, vectors.shape[1]).mean(dim=0)
    return torch.nn.functional.normalize(means, dim=1) if normalize else means
