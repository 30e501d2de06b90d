"""What was found for a photo (`Match`), and what can be searched for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facetric.embedder import Embedder, ImageLike, Vectors
from facetric.images import Files, ImageError, as_source
from facetric.machine import made_ahead
from facetric.photos.labels import Vote
from facetric.photos.store import Hit, Model, batched

_BATCH = 32  # photos that are searched for at a time
_log = logging.getLogger("facetric")


@dataclass(frozen=True)
class Match:
    """What was found for one photo: the most similar ones first."""

    photo: str  # its path, or "#0", "#1", … for what was in memory
    hits: tuple[Hit, ...]
    vote: Vote | None = None  # its label, when asked for, and something is near
    near_enough: float = -np.inf  # the similarity that makes a photo near

    @property
    def near(self) -> tuple[Hit, ...]:
        """Those that are similar enough; others are only the most similar that there are."""
        return tuple(hit for hit in self.hits if hit.similarity >= self.near_enough)

    @property
    def is_unknown(self) -> bool:
        """Whether nothing is similar enough, or its label is more likely wrong than right."""
        return not self.near or (self.vote is not None and self.vote.is_unknown)

    @property
    def verdict(self) -> str:
        """One line: unknown, or its label; empty without either."""
        if not self.near:
            return "unknown: nothing in the index is similar enough"
        if self.vote is None:
            return ""
        expected = self.vote.expected_precision
        how_sure = "how sure is not known: too few labels" if expected is None else f"right {expected:.0%} of the time"
        vote = f"{self.vote.label} ({how_sure})"
        return f"unknown, perhaps {vote}" if self.is_unknown else vote


def matched(name: str, found: Sequence[Hit], vote: Vote | None, *, top: int, at_least: float | None) -> Match:
    """What is near among what was found for a photo, the most similar first."""
    limit = -np.inf if at_least is None else at_least
    near = tuple(hit for hit in found if hit.similarity >= limit)
    return Match(name, (tuple(found) if at_least is None else near)[:top], vote if near else None, limit)


Queries = tuple[list[str], NDArray[np.float32]]  # names, and a row for each


def query_vectors(photos: Any, model: Model) -> Queries | None:
    """`Vectors`, or arrays of floats, which are vectors; None for anything else."""
    if isinstance(photos, Vectors):
        if photos.model and photos.model != model.fingerprint:
            raise ValueError(
                f"these vectors are of another model than those of the index ({photos.model[:12]}; {model.fingerprint[:12]}): "
                "embed with the model of the index"
            )
        return list(photos.names), query_vectors(photos.vectors, model)[1]  # type: ignore[index]
    dim = model.dim
    arrays = photos if isinstance(photos, list | tuple) else [photos]
    if not arrays or not all(isinstance(array, np.ndarray) and array.dtype.kind == "f" for array in arrays):
        return None
    if not all(array.ndim in (1, 2) and array.shape[-1] == dim and np.isfinite(array).all() for array in arrays):
        raise ValueError(
            f"a vector to search for has {dim} finite numbers; got shape {arrays[0].shape}: pass what the index's model gives, "
            "(dim,) or (n, dim), or an image as uint8"
        )
    rows = np.concatenate([np.atleast_2d(array) for array in arrays]).astype(np.float32)
    return [f"#{row}" for row in range(len(rows))], rows


def embedded(embedder: Embedder, photos: ImageLike) -> Queries:
    """Names and vectors of what can be opened; a warning for each of the others, or an ImageError where all are broken."""
    source = as_source(photos)
    if not isinstance(source, Files):
        return list(source.names), embedder.encode(source)  # type: ignore[arg-type]
    names, vectors, problems = list[str](), [np.empty((0, embedder.dim), dtype=np.float32)], list[ImageError]()
    tasks = (partial(_opened, partial(source.pixels, row, embedder.preprocessing)) for row in range(len(source.names)))
    for some in batched(zip(source.names, made_ahead(tasks), strict=True), _BATCH):
        opened = [(name, pixels) for name, pixels in some if not isinstance(pixels, ImageError)]
        problems += [error for _, error in some if isinstance(error, ImageError)]
        names += [name for name, _ in opened]
        vectors += [embedder.encode([pixels for _, pixels in opened])] if opened else []
    if problems and not names:
        raise problems[0]
    for problem in problems:
        _log.warning("left out: %s", problem)
    return names, np.concatenate(vectors)


def _opened(pixels: Callable[[], NDArray[np.uint8]]) -> NDArray[np.uint8] | ImageError:
    try:
        return pixels()
    except ImageError as error:
        return error


def check_search(top: Any, at_least: Any, unknown_fraction: Any) -> None:
    """A ValueError where nothing can be searched for like this."""
    if not isinstance(top, int | np.integer) or top < 1:
        raise ValueError(f"top must be a whole number, at least 1; got {top!r}: top=10 shows ten photos")
    if at_least is not None and not (isinstance(at_least, float | int | np.floating) and -1 <= at_least <= 1):
        raise ValueError(f"similarities lie between -1 and 1; got {at_least!r}: try at_least=0.8")
    if not (isinstance(unknown_fraction, float | int | np.floating) and 0 <= unknown_fraction < 1):
        raise ValueError(
            f"the fraction of unknown photos is at least 0 and below 1; got {unknown_fraction!r}: try unknown_fraction=0.5"
        )
