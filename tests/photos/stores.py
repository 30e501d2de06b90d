"""Every store of an index, opened the same way."""

import numpy as np
import pytest

from facetric.photos.contract import About
from facetric.photos.milvus_store import MilvusPlace
from facetric.photos.sqlite_store import SqliteStore
from facetric.photos.store import EmbeddedPhoto

DIMENSIONS = 8


def sqlite_store(folder, *, read_only=False):
    return SqliteStore(folder / "index.sqlite", fingerprint="a" * 64, dimensions=DIMENSIONS, read_only=read_only)


def milvus_store(folder, *, read_only=False):
    """Milvus Lite: the engine of Milvus in a local file."""
    pytest.importorskip("milvus_lite", reason="pip install pymilvus milvus-lite")
    place = MilvusPlace(f"milvus://{folder}/milvus.db/photos")
    return place.store(About("a" * 64, DIMENSIONS, None), read_only=read_only)


STORES = {"sqlite": sqlite_store, "milvus": milvus_store}


def embedded(path, vector, *, content=None, state="state"):
    """A photo as `embed_list` hands it over; without a content of its own, that of its path."""
    values = None if vector is None else np.asarray(vector, dtype=np.float32)
    return EmbeddedPhoto(path, state, content or path.encode().ljust(16, b".")[-16:], values)
