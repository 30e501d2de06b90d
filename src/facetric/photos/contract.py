"""What a store of an index promises; tests/index/test_store_contract.py holds every store to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from facetric.photos.store import PhotoStore


@dataclass(frozen=True)
class About:
    """Whose vectors an index holds."""

    model: str  # the fingerprint
    dimensions: int
    run: str | None  # the run folder of the model; None for the packaged network


@dataclass(frozen=True)
class Entry:
    """A photo of the index."""

    path: str  # absolute
    content: bytes  # the hash of its bytes
    label: str  # empty without


@dataclass(frozen=True)
class Hit:
    """A photo that was found, and how similar it is: the cosine, 1 for the same direction."""

    entry: Entry
    similarity: float


class Store(PhotoStore, Protocol):
    """Photos by path, vectors by content, all of one model. What `add` was given is there, whole and once, when it returns.

    `add` (of `PhotoStore`) inserts photos or replaces those of the same path; a photo whose content is known needs no vector.
    """

    def set_labels(self, labels: Mapping[str, str]) -> None:
        """Label photos by path, also those that are added later; an empty label takes it away."""
        ...

    def remove(self, paths: Iterable[str]) -> None:
        """Forget these photos, their labels, and vectors that no other photo has."""
        ...

    def version(self) -> int:
        """Another number when photos or labels have changed; a store that cannot tell gives another one every minute."""
        ...

    def entries(self) -> list[Entry]:
        """All photos, by path."""
        ...

    def vectors(self, contents: Iterable[bytes]) -> NDArray[np.float32]:
        """The vectors of known contents, in their order: (n, dimensions)"""
        ...

    def search(self, queries: NDArray[np.float32], *, top: int, label: str | None = None) -> list[list[Hit]]:
        """For each query (q, d) the `top` most similar photos, of this label if one is given; equal ones by path. Exact."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


class Place(Protocol):
    """Where an index is."""

    def about(self) -> About | None:
        """None where there is no index yet; a ValueError where there is something else."""
        ...

    def write(self, about: About) -> None:
        """Make this the model of the index, whose store is complete."""
        ...

    def store(self, about: About, *, read_only: bool) -> Store:
        """The store of this model, made where it is missing unless `read_only`."""
        ...

    def embed_again(self, model: str) -> str:
        """The command that embeds the photos with another model, given its --model option."""
        ...

    def lock(self) -> None:
        """Before writing; a RuntimeError where another process writes and only one can."""
        ...

    def unlock(self) -> None: ...
