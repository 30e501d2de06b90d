"""A collection on Milvus, for more photos than one machine holds: milvus://host:19530/collection. It keeps no looks or decisions.

milvus:///folder/file.db/collection is Milvus Lite, the same engine in a local file. Vectors are in a FLAT index, which compares
with all of them; what it proposes is decided in float64, as in memory. Several processes may write: a photo is one row, by
its path.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import numpy as np
from numpy.typing import NDArray

from facetric.metrics import nearest, unit_rows
from facetric.photos.decisions import Decisions
from facetric.photos.store import Entry, Hit, Look, Model, NewPhoto, StoreError, batched
from facetric.text import counted, printable

_FORMAT, _PROPERTY = "facetric collection 1", "facetric"
_MAX_TOP = 16_384  # of Milvus
_AT_ONCE = 1000  # rows of a request
_ADDRESS = re.compile(r"milvus://(?P<host>[^/]*)(?P<file>/.+)?/(?P<collection>[A-Za-z_]\w*)")
_TEXTS = {"path": 16_384, "state": 256, "content": 64, "label": 4096}  # and how long they may be


class MilvusStore(AbstractContextManager["MilvusStore"]):
    """The photos as rows of a collection of Milvus, with the vectors of its one model; paths and labels are percent-encoded."""

    keeps_looks = False

    def __init__(self, address: str, model: Model, *, read_only: bool = False) -> None:
        self.model = model
        self._uri, self._collection = parsed_address(address)
        self._labels: dict[str, str] = {}  # of photos that are added later
        self._client = _client(self._uri)
        try:
            with milvus_errors():
                if not read_only and not self._client.has_collection(self._collection):
                    self._create()
                self._client.load_collection(self._collection)
        except BaseException:
            self.close()
            raise

    @classmethod
    def recorded(cls, address: str, *, any_folder: bool = False) -> Model | None:
        uri, collection = parsed_address(address)
        with closing(_client(uri)) as client, milvus_errors():
            if not client.has_collection(collection):
                return None
            found = client.describe_collection(collection)
        try:
            record = json.loads(found["description"] or found["properties"][_PROPERTY])
            if record.pop("format") != _FORMAT:
                raise ValueError
            return Model(**record)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(
                f"{printable(address)} exists and is not a collection of this version of facetric: choose another name"
            ) from None

    @classmethod
    def alone(cls, address: str) -> AbstractContextManager[None]:
        return nullcontext()  # several may write

    def make_current(self) -> None:
        """Its one model is always the current one."""

    def check(self) -> None:
        """The server checks its files."""

    def _create(self) -> None:
        from pymilvus import DataType

        description = json.dumps({"format": _FORMAT, **vars(self.model)})
        is_local = not self._uri.startswith("http:")
        kept = {"properties": {_PROPERTY: description}} if is_local else {}  # Milvus Lite drops descriptions
        schema = self._client.create_schema(auto_id=False, description=description)
        for name, length in _TEXTS.items():
            schema.add_field(name, DataType.VARCHAR, max_length=length, is_primary=name == "path")
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self.model.dim)
        index = self._client.prepare_index_params()
        index.add_index("vector", index_type="FLAT", metric_type="COSINE")
        self._client.create_collection(self._collection, schema=schema, index_params=index, consistency_level="Strong", **kept)

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def states(self, photos: Iterable[Path]) -> dict[str, tuple[str, bytes]]:
        rows = self._at("path", (_encoded(str(photo)) for photo in photos), "path", "state", "content")
        return {_decoded(row["path"]): (row["state"], bytes.fromhex(row["content"])) for row in rows}

    def known(self, contents: Iterable[bytes] | None = None) -> set[bytes]:
        return set(self._known(contents or ()))  # not all: a hundred million hashes would not fit

    def vectors(self, contents: Iterable[bytes]) -> NDArray[np.float32]:
        contents = list(contents)
        known = self._known(contents)
        if missing := set(contents) - known.keys():
            raise StoreError(f"Milvus: {counted(len(missing), 'vector')} left the collection meanwhile: try again")
        found = np.array([known[content] for content in contents], dtype=np.float32)
        return found.reshape(len(contents), self.model.dim)

    def add(self, photos: Iterable[NewPhoto]) -> None:
        photos = list(photos)
        vectors: dict[bytes, Any] = {photo.content: photo.vector for photo in photos if photo.vector is not None}
        vectors = self._known({photo.content for photo in photos} - vectors.keys()) | vectors
        paths = [_encoded(str(photo.path)) for photo in photos]
        labels = {row["path"]: row["label"] for row in self._at("path", paths, "path", "label")}
        labels |= {_encoded(path): _encoded(label) for path, label in self._labels.items()}
        self._upsert(
            {
                "path": path,
                "state": photo.state,
                "content": photo.content.hex(),
                "label": labels.get(path, ""),
                "vector": vectors[photo.content],
            }
            for path, photo in zip(paths, photos, strict=True)
        )

    def set_labels(self, labels: Mapping[str, str]) -> None:
        self._labels |= labels
        rows = list(self._at("path", map(_encoded, labels), *_TEXTS, "vector"))
        self._upsert(row | {"label": _encoded(labels[_decoded(row["path"])])} for row in rows)

    def remove(self, paths: Iterable[str]) -> None:
        paths = list(paths)
        for path in paths:
            self._labels.pop(path, None)
        for some in batched(map(_encoded, paths), _AT_ONCE):
            with milvus_errors():
                self._client.delete(self._collection, ids=some)

    def moment(self) -> AbstractContextManager[None]:
        return nullcontext()  # others write at any time

    def version(self) -> int:
        return int(time.monotonic() // 60)  # others write too, and nobody is told

    def entries(self) -> list[Entry]:
        return sorted(map(_entry, self._rows("", "path", "content", "label")), key=lambda entry: os.fsencode(entry.path))

    def looks(self, contents: Iterable[bytes]) -> dict[bytes, Look]:
        return {}

    def decisions(self) -> Decisions:
        return Decisions()

    def decide(self, change: Callable[[Decisions], Decisions]) -> Decisions:
        raise ValueError("a collection on Milvus keeps no decisions: decide about a folder's collection (`facetric index add`)")

    def search(self, queries: NDArray[np.float32], *, top: int, label: str | None = None) -> list[list[Hit]]:
        wanted = "" if label is None else f'label == "{_encoded(label)}"'
        return [self._nearest(query, top, wanted) for query in unit_rows(queries)]

    def _nearest(self, query: NDArray[np.float32], top: int, wanted: str) -> list[Hit]:
        k = min(2 * top + 8, _MAX_TOP)
        while True:
            with milvus_errors():
                (found,) = self._client.search(
                    self._collection, [query], filter=wanted, limit=k, output_fields=["path", "content", "label", "vector"]
                )
            rows = sorted((hit["entity"] for hit in found), key=lambda row: os.fsencode(_entry(row).path))
            vectors = np.array([row["vector"] for row in rows], dtype=np.float32).reshape(-1, self.model.dim)
            (places,), (exact,) = nearest(unit_rows(vectors), top, queries=query[None])
            hits = [Hit(_entry(rows[place]), min(x, 1.0)) for place, x in zip(places, exact.tolist(), strict=True)]
            rounding = 2.0**-23 * (self.model.dim + 2)  # of a float32 product
            if len(rows) < k or k == _MAX_TOP or found[-1]["distance"] + 2 * rounding < hits[-1].similarity:
                return hits
            k = min(4 * k, _MAX_TOP)

    def _known(self, contents: Iterable[bytes]) -> dict[bytes, Any]:
        """The vectors of those contents that have one."""
        rows = self._at("content", (content.hex() for content in contents), "content", "vector")
        return {bytes.fromhex(row["content"]): row["vector"] for row in rows}

    def _at(self, field: str, values: Iterable[str], *fields: str) -> Iterator[dict[str, Any]]:
        """The rows that have one of these values, percent-encoded as they are kept."""
        for some in batched(values, _AT_ONCE):
            yield from self._rows(f"{field} in {json.dumps(some)}", *fields)

    def _rows(self, wanted: str, *fields: str) -> Iterator[dict[str, Any]]:
        with milvus_errors():
            rows = self._client.query_iterator(self._collection, batch_size=_AT_ONCE, filter=wanted, output_fields=list(fields))
            while some := rows.next():
                yield from ({field: row[field] for field in fields} for row in some)
            rows.close()

    def _upsert(self, rows: Iterable[dict[str, Any]]) -> None:
        for some in batched(rows, _AT_ONCE):
            with milvus_errors():
                self._client.upsert(self._collection, some)


def parsed_address(address: str) -> tuple[str, str]:
    """Where Milvus is, and the name of the collection there."""
    match = _ADDRESS.fullmatch(address)
    if match is None or bool(match["host"]) == bool(match["file"]):
        raise ValueError(f"an index on Milvus is milvus://host:19530/collection; got {printable(address)}: pass such an address")
    return match["file"] or f"http://{match['host']}", match["collection"]


def _client(uri: str) -> Any:
    try:
        from pymilvus import MilvusClient
    except ImportError:
        raise ValueError("milvus:// needs pymilvus: pip install 'facetric[milvus]'") from None
    with milvus_errors():
        return MilvusClient(uri)


@contextmanager
def milvus_errors() -> Iterator[None]:
    """What Milvus says, in one line."""
    from pymilvus import MilvusException

    try:
        yield
    except MilvusException as error:
        raise OSError(f"Milvus: {error.message}: check the address, and that the server runs") from error


def _encoded(text: str) -> str:
    return quote(os.fsencode(text))


def _decoded(text: str) -> str:
    return os.fsdecode(unquote_to_bytes(text))


def _entry(row: Mapping[str, Any]) -> Entry:
    return Entry(_decoded(row["path"]), bytes.fromhex(row["content"]), _decoded(row["label"]))
