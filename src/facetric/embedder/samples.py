"""Real pictures that come with the install, to check an export on: parts of the two photos of scikit-learn."""

from __future__ import annotations

import numpy as np
from PIL import Image


def sample_pictures(n: int = 16) -> list[Image.Image]:
    """n different parts, of 160 to 420 pixels, of a temple and of a flower in turn."""
    from sklearn.datasets import load_sample_images  # type: ignore[import-untyped]

    photos = [Image.fromarray(photo) for photo in load_sample_images().images]
    rng = np.random.default_rng(0)
    parts = []
    for number in range(n):
        photo = photos[number % len(photos)]
        width, height = (int(side) for side in rng.integers(160, 421, 2))
        left, top = int(rng.integers(0, photo.width - width + 1)), int(rng.integers(0, photo.height - height + 1))
        parts.append(photo.crop((left, top, left + width, top + height)))
    return parts
