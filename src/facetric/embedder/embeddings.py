"""`Embeddings`: the vectors of a set of images with labels and names, saved as .npz; and the blocks they are computed in.

A block is a file of consecutive images' vectors, written under a temporary name and renamed, so an existing file is complete.
The folder's name holds a key of everything that determines the vectors (weights, images, views): another model never finds them.
Blocks have a fixed number of images whatever the number of processes: work killed on two machines can resume on one.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facetric.files import write_atomically

PREFIX = "embedding-"


@dataclass(frozen=True, eq=False)
class Embeddings:
    """n images as vectors. `source` says how they were made (views, dataset, split, checkpoint), as far as it is known."""

    vectors: NDArray[np.float32]  # (n, d)
    labels: NDArray[np.int64]  # (n,)
    images: NDArray[np.str_]  # (n,) paths, or "#7" for a picture held in memory
    source: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not len(self.vectors) == len(self.labels) == len(self.images):
            raise ValueError(
                f"vectors, labels and images must be of equal length; got {len(self.vectors)}, {len(self.labels)} and "
                f"{len(self.images)}: pass those of one dataset"
            )

    def __len__(self) -> int:
        return len(self.vectors)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of vectors, labels, image names and source."""
        digest = hashlib.sha256(json.dumps(self.source, sort_keys=True).encode())
        for array in (self.vectors, self.labels, self.images):
            digest.update(f"{array.dtype.str} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an .npz with the arrays vectors, labels, images, source (JSON) and fingerprint; nothing is pickled."""
        source, fingerprint = np.array(json.dumps(self.source)), np.array(self.fingerprint)
        buffer = io.BytesIO()
        np.savez(buffer, vectors=self.vectors, labels=self.labels, images=self.images, source=source, fingerprint=fingerprint)
        write_atomically(Path(path), buffer.getvalue())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Embeddings:
        """Read what `save` wrote; a ValueError for anything else."""
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
                source = json.loads(str(arrays["source"]))
                found = cls(arrays["vectors"], arrays["labels"], arrays["images"], source)
                if str(arrays["fingerprint"]) != found.fingerprint:
                    raise ValueError("its fingerprint does not match its content")
        except FileNotFoundError:
            raise
        except Exception as error:  # a damaged archive can raise nearly anything
            raise _not_embeddings(path, error) from None
        return found


def read_fingerprint(path: str | os.PathLike[str]) -> str:
    """The fingerprint in a file of embeddings, without reading its vectors."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            return str(arrays["fingerprint"])
    except FileNotFoundError:
        raise
    except Exception as error:  # as in Embeddings.load
        raise _not_embeddings(path, error) from None


def _not_embeddings(path: str | os.PathLike[str], error: Exception) -> ValueError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return ValueError(
        f"{path} is damaged or holds no embeddings of this version ({reason}): write it with `facetric evaluate RUN`"
    )


@dataclass(frozen=True)
class BlockFolder:
    """The blocks of n images in `folder`/embedding-KEY, `block_size` images each."""

    folder: Path
    key: str
    n: int
    block_size: int

    @property
    def path(self) -> Path:
        return self.folder / f"{PREFIX}{self.key}"

    @property
    def starts(self) -> range:
        """The first image of every block."""
        return range(0, self.n, self.block_size)

    def share(self, rank: int, world_size: int) -> range:
        """The blocks of one process: consecutive, as many as the others, give or take one."""
        n_blocks = len(self.starts)
        return self.starts[n_blocks * rank // world_size : n_blocks * (rank + 1) // world_size]

    def file(self, start: int) -> Path:
        return self.path / f"{start:010d}.npy"

    def write(self, start: int, vectors: NDArray[np.float32]) -> None:
        assert len(vectors) == min(self.block_size, self.n - start)
        self.path.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        np.save(buffer, vectors)
        content = buffer.getvalue()
        write_atomically(self.file(start), content + hashlib.sha256(content).digest())

    def has(self, start: int) -> bool:
        """Whether a block is there as it was written. A damaged one is removed, to be made again."""
        try:
            self._vectors(start)
        except FileNotFoundError:
            return False
        except ValueError:
            self.file(start).unlink(missing_ok=True)
            return False
        return True

    def read(self, starts: range) -> NDArray[np.float32]:
        """The vectors of these blocks, one below the other; a ValueError that names a damaged one, which is removed."""
        try:
            return np.concatenate([self._vectors(start) for start in starts])
        except ValueError:
            for start in starts:
                self.has(start)
            raise

    def _vectors(self, start: int) -> NDArray[np.float32]:
        data = self.file(start).read_bytes()
        content, digest = data[:-32], data[-32:]
        if hashlib.sha256(content).digest() != digest:
            raise ValueError(f"{self.file(start)} is damaged: run the command again, which makes it again")
        vectors: NDArray[np.float32] = np.load(io.BytesIO(content), allow_pickle=False)
        return vectors

    def wait_for_all(self, *, patience: float, on_progress: Callable[[int], None]) -> None:
        """Wait until every block exists. Blocks come from processes that share only this folder."""
        last_news, n_found = time.monotonic(), -1
        while True:
            missing = [start for start in self.starts if not self.file(start).exists()]
            if not missing:
                return
            if len(self.starts) - len(missing) != n_found:
                last_news, n_found = time.monotonic(), len(self.starts) - len(missing)
                on_progress(min(n_found * self.block_size, self.n))
            if time.monotonic() - last_news > patience:
                raise TimeoutError(
                    f"{len(missing)} of {len(self.starts)} blocks did not arrive in {self.path} for {patience:g} s: look at the "
                    "other processes, which must see the same folder; run the command again, finished blocks are kept"
                )
            time.sleep(0.2)
