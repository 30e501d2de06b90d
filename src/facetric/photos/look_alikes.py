"""Which photos look alike to a model: as similar as a photo is to an altered copy of itself.

How similar that is depends on the model and on the photos, so it is measured on a sample of them: each is cropped, darkened and
compressed, and the threshold is the similarity that most copies reach.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import NDArray
from PIL import Image, ImageEnhance

from facetric.embedder import Embedder
from facetric.images import open_image
from facetric.metrics import unit_rows
from facetric.photos.near import join, roots
from facetric.progress import Progress

N_SAMPLE = 100  # photos that are altered
QUANTILE = 0.1  # of the similarities to their copies: nine of ten copies are found
_CROP, _DARKER, _QUALITY = 0.05, 0.9, 50  # of each side; brightness; JPEG
_BLOCK = 1024


def similarity_of_copies(photos: Sequence[Path], vectors: NDArray[np.float32], encoder: Embedder) -> float:
    """The cosine similarity above which two photos look alike to this model, from a sample of these photos (n) and vectors."""
    sample = np.unique(np.linspace(0, len(photos) - 1, N_SAMPLE).astype(np.int64))
    copies = encoder.encode([encoder.preprocessing.pixels(altered(open_image(photos[i]))) for i in sample])
    return float(np.quantile((unit_rows(copies) * unit_rows(vectors[sample])).sum(axis=1), QUANTILE))


def altered(image: Image.Image) -> Image.Image:
    """A copy as people make them: cropped by a twentieth on every side, darker, compressed."""
    width, height = image.size
    x, y = round(_CROP * width), round(_CROP * height)
    cropped = image.crop((x, y, max(width - x, x + 1), max(height - y, y + 1)))
    buffer = io.BytesIO()
    ImageEnhance.Brightness(cropped).enhance(_DARKER).save(buffer, "JPEG", quality=_QUALITY)
    return Image.open(buffer).convert("RGB")


def look_alike_groups(
    vectors: NDArray[np.float32], threshold: float, *, on_progress: Progress | None = None
) -> NDArray[np.int64]:
    """For every vector (n, d) the first one that it is linked to by cosine similarities of at least `threshold`."""
    directions = unit_rows(vectors)
    parents = np.arange(len(vectors))
    for start in range(0, len(vectors), _BLOCK):
        similarities = directions[start : start + _BLOCK] @ directions[start:].T  # (block, n − start)
        first, second = np.nonzero(similarities >= threshold)
        _join_all(parents, first + start, second + start)
        if on_progress is not None:
            on_progress(min(start + _BLOCK, len(vectors)), len(vectors))
    return roots(parents)


@njit(cache=True)
def _join_all(parents: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64]) -> None:
    for i in range(len(first)):
        join(parents, first[i], second[i])
