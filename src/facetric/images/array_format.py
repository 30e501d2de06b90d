"""The bytes of an array file: a header with its own checksum, and a checksum for every block of rows."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

ANY_MAGIC = b"facetric array file "  # the start of files of every format version
MAGIC = ANY_MAGIC + b"2\n"
HEADER_BYTES = 4096  # a page, so that rows are aligned
BLOCK_BYTES = 1 << 22  # of rows per checksum
N_SAMPLED = 8  # blocks that are read when a file is opened


def packed_header(header: dict[str, Any]) -> bytes:
    text = json.dumps(header).encode()
    return (MAGIC + b"%08x" % zlib.crc32(text) + text).ljust(HEADER_BYTES, b"\0")


def unpacked_header(raw: bytes) -> dict[str, Any]:
    """The header that `packed_header` made; empty for anything else."""
    text = raw[len(MAGIC) + 8 :].rstrip(b"\0")
    if not raw.startswith(MAGIC + b"%08x" % zlib.crc32(text)):
        return {}
    header: dict[str, Any] = json.loads(text)
    return header


class Checksums:
    """CRC-32 of every block of the bytes added, however they are chunked."""

    def __init__(self) -> None:
        self._blocks: list[int] = []
        self._room = 0  # left in the last block

    def add(self, data: memoryview) -> None:
        while len(data):
            if self._room == 0:
                self._blocks.append(0)
                self._room = BLOCK_BYTES
            piece, data = data[: self._room], data[self._room :]
            self._blocks[-1] = zlib.crc32(piece, self._blocks[-1])
            self._room -= len(piece)

    @property
    def table(self) -> bytes:
        return np.array(self._blocks, dtype="<u4").tobytes()


def sampled_blocks(n_blocks: int) -> Sequence[int]:
    """The first block, the last, and others at random, different each time, so that damage is found sooner or later."""
    if n_blocks <= N_SAMPLED:
        return range(n_blocks)
    return sorted([0, n_blocks - 1, *random.Random().sample(range(1, n_blocks - 1), N_SAMPLED - 2)])
