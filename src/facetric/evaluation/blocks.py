"""Embeddings on their way: blocks of consecutive images, a file each, so that work is shared and never done twice.

A block is written under a temporary name and renamed, so a file that is there is whole. The folder's name holds a key of all
that decides the vectors (weights, images, views); another model never finds these blocks. Blocks have a fixed number of images
whatever the number of processes: a run that was killed on two machines goes on with one.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facetric.files import write_atomically

PREFIX = "embedding-"


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
        """The blocks of one process: consecutive, as many as for the others give or take one."""
        n_blocks = len(self.starts)
        return self.starts[n_blocks * rank // world_size : n_blocks * (rank + 1) // world_size]

    def file(self, start: int) -> Path:
        return self.path / f"{start:010d}.npy"

    def write(self, start: int, vectors: NDArray[np.float32]) -> None:
        assert len(vectors) == min(self.block_size, self.n - start)
        self.path.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        np.save(buffer, vectors)
        write_atomically(self.file(start), buffer.getvalue())

    def read(self, starts: range) -> NDArray[np.float32]:
        """The vectors of these blocks, one below the other."""
        return np.concatenate([np.load(self.file(start), allow_pickle=False) for start in starts])

    def wait_for_all(self, *, patience: float, on_progress: Callable[[int], None]) -> None:
        """Until every block is there. Blocks come from processes that share nothing but this folder."""
        last_news, n_there = time.monotonic(), -1
        while True:
            missing = [start for start in self.starts if not self.file(start).exists()]
            if not missing:
                return
            if len(self.starts) - len(missing) != n_there:
                last_news, n_there = time.monotonic(), len(self.starts) - len(missing)
                on_progress(min(n_there * self.block_size, self.n))
            if time.monotonic() - last_news > patience:
                raise TimeoutError(
                    f"{len(missing)} of {len(self.starts)} blocks did not arrive in {self.path} for {patience:g} s: look at the "
                    "other processes, which must see the same folder; run the command again, what is there is kept"
                )
            time.sleep(0.2)
