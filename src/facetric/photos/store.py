"""What a collection keeps, and what a store of it promises; tests/photos/test_store_contract.py holds every store to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from facetric.images import Problem
from facetric.photos.decisions import Decisions


@dataclass(frozen=True)
class Model:
    """Whose vectors they are."""

    fingerprint: str
    dim: int
    run: str | None  # the run folder, or the exported file; None for the packaged network


@dataclass(frozen=True, slots=True)
class Entry:
    """A photo of a collection."""

    path: str  # absolute
    content: bytes  # the hash of its bytes
    label: str  # empty without


@dataclass(frozen=True)
class Hit:
    """A photo that was found, and how similar it is: the cosine, 1 for the same direction."""

    entry: Entry
    similarity: float


@dataclass(frozen=True)
class Added:
    """What a change did to a collection."""

    n_photos: int  # of those that were passed, in the collection now
    n_new: int  # embedded now; the others were known
    n_removed: int = 0  # whose file is gone
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Status:
    """What a collection holds."""

    model: Model
    n_photos: int
    n_contents: int  # photos without exact copies
    labels: dict[str, int]  # photos of each label, by name; "" without
    missing: tuple[str, ...]  # photos whose file is not there any more


@dataclass(frozen=True)
class NewPhoto:
    """What is known of one photo after it was read."""

    path: Path
    state: str  # of the file: see `file_state`
    content: bytes  # the hash of its bytes
    vector: NDArray[np.float32] | None  # None when the content was known already
    look: bytes = b""  # a packed `Look`, from the same decoding; empty where the store keeps none


class StoreError(OSError):
    """A store cannot be used; the message is one line."""


class Store(Protocol):
    """Photos by path, vectors of one model by content, at an address; made where there is none unless it is opened `read_only`.

    What `add` was given is there, whole and once, when it returns. `recorded` and `alone` need no model.
    """

    keeps_looks: bool  # whether it wants thumbnails and sketches too

    def __init__(self, address: str, model: Model, *, read_only: bool = False) -> None: ...

    @classmethod
    def recorded(cls, address: str, *, any_folder: bool = False) -> Model | None:
        """Whose vectors are searched; None where there is no collection yet, a ValueError where there is something else, unless
        a collection may be made among other files (`any_folder`).
        """
        ...

    @classmethod
    def alone(cls, address: str) -> AbstractContextManager[None]:
        """While photos are written; a RuntimeError where another process does and only one can."""
        ...

    def make_current(self) -> None:
        """Have the vectors of this model searched from now on."""
        ...

    def check(self) -> None:
        """A StoreError if the whole of it is not in order."""
        ...

    def states(self, photos: Iterable[Path]) -> dict[str, tuple[str, bytes]]:
        """The file state and content of those photos that are here and have a vector, by path."""
        ...

    def contents(self) -> set[bytes]:
        """Contents that need not be decoded: all that have a vector, or none where there are too many to list."""
        ...

    def add(self, photos: Iterable[NewPhoto]) -> None:
        """Insert photos or replace those of the same path, all or none; one whose content is known needs no vector."""
        ...

    def set_labels(self, labels: Mapping[str, str]) -> None:
        """Label photos by path, also those that are added later; an empty label takes it away."""
        ...

    def remove(self, paths: Iterable[str]) -> None:
        """Forget these photos, their labels, and what no other photo of their content needs."""
        ...

    def version(self) -> int:
        """Another number when photos or labels have changed; a store that cannot tell gives another one every minute."""
        ...

    def search(self, queries: NDArray[np.float32], *, top: int, label: str | None = None) -> list[list[Hit]]:
        """For each query (q, dim) the `top` most similar photos, of this label if one is given; equal ones by path. Exact."""
        ...

    def decide(self, change: Callable[[Decisions], Decisions]) -> Decisions:
        """Replace the decisions by what `change` makes of them, in one step that is on the disk when this returns."""
        ...

    def known(self, contents: Iterable[bytes]) -> set[bytes]: ...  # those that have a vector
    def entries(self) -> list[Entry]: ...  # all photos that have a vector, by path
    def vectors(self, contents: Iterable[bytes]) -> NDArray[np.float32]: ...  # of known contents, in their order: (n, dim)
    def looks(self, contents: Iterable[bytes]) -> dict[bytes, bytes]: ...  # the packed looks of those that have one
    def decisions(self) -> Decisions: ...
    def noted(self, name: str) -> str | None: ...  # what `note` kept under this name
    def note(self, name: str, value: str) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
