"""What is searched for, and what was found: photos opened and embedded, `Match`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facetric.embedder import Embedder
from facetric.images.decoding import ImageError, open_image
from facetric.photos.contract import Hit
from facetric.photos.vote import Vote

_log = logging.getLogger("facetric")


@dataclass(frozen=True)
class Match:
    """What was found for one photo: the most similar ones first."""

    photo: str
    hits: tuple[Hit, ...]
    vote: Vote | None = None  # when asked for, and a neighbor has a label

    @property
    def is_unknown(self) -> bool:
        """Whether nothing is similar enough, or the label that was voted for is more likely wrong than right."""
        return not self.hits or (self.vote is not None and self.vote.is_unknown)


def check_search(top: int, at_least: float | None, foreign: float) -> None:
    """A ValueError where nothing can be searched for like this."""
    if top < 1:
        raise ValueError(f"top must be at least 1; got {top}: --top 10 shows ten photos")
    if at_least is not None and not -1 <= at_least <= 1:
        raise ValueError(f"similarities lie between -1 and 1; got {at_least}: try --at-least 0.8")
    if not 0 <= foreign < 1:
        raise ValueError(f"the share of foreign photos is at least 0 and below 1; got {foreign}: try --foreign 0.5")


def embedded_photos(encoder: Embedder, paths: Sequence[Path]) -> tuple[list[Path], NDArray[np.float32]]:
    """Those that can be opened, and their vectors; a warning for each of the others, or an ImageError where all are broken."""
    opened, vectors, broken = [], [], []
    for start in range(0, len(paths), 32):
        pixels = []
        for path in paths[start : start + 32]:
            try:
                pixels.append(encoder.preprocessing.pixels(open_image(path, at_least=encoder.preprocessing.at_least)))
                opened.append(path)
            except ImageError as error:
                broken.append(error)
        if pixels:
            vectors.append(encoder.encode(pixels))
    if not opened:
        raise broken[0]
    for reason in broken:
        _log.warning("left out: %s", reason)
    return opened, np.concatenate(vectors)
