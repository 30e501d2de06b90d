"""Every store of an index, opened the same way."""

import numpy as np
import pytest

from facetric.photos.milvus_store import MilvusStore
from facetric.photos.sqlite_store import SqliteStore
from facetric.photos.store import Model, NewPhoto

DIM = 8


def sqlite_store(folder, *, read_only=False):
    folder.mkdir(exist_ok=True)
    return SqliteStore(str(folder), Model("a" * 64, DIM, None), read_only=read_only)


def milvus_store(folder, *, read_only=False):
    """Milvus Lite: the engine of Milvus in a local file."""
    pytest.importorskip("milvus_lite", reason="pip install pymilvus milvus-lite")
    return MilvusStore(f"milvus://{folder}/milvus.db/photos", Model("a" * 64, DIM, None), read_only=read_only)


STORES = {"sqlite": sqlite_store, "milvus": milvus_store}


def embedded(path, vector, *, content=None, state="state"):
    """A photo as `ingest` hands it over; without a content of its own, that of its path."""
    values = None if vector is None else np.asarray(vector, dtype=np.float32)
    return NewPhoto(path, state, content or path.encode().ljust(16, b".")[-16:], values)
