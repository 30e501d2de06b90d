"""Vectors of photos that were damaged on disk, in a file or in a store: refused in one line, never used."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from facetric.embedder import Vectors
from facetric.photos.arrangement import RECORD, Placed, arrange
from facetric.photos.contract import About
from facetric.photos.sqlite_store import IndexFolder
from facetric.photos.store import EmbeddedPhoto, StoreError, VectorStore

VECTORS = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
CONTENTS = [bytes([i]) * 16 for i in range(6)]


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_a_damaged_file_of_vectors_is_refused(tmp_path, suffix):
    path, rng = tmp_path / f"v.{suffix}", np.random.default_rng(0)
    paths = tuple(f"{i}, é\n.jpg" for i in range(6))
    before = Vectors(VECTORS, paths, hashes=tuple(content.hex() for content in CONTENTS), model="m" * 64)
    before.save(path)
    data = path.read_bytes()
    assert Vectors.load(path).fingerprint == before.fingerprint
    said = []
    for _ in range(150):
        hurt = bytearray(data)
        hurt[rng.integers(len(hurt))] ^= 1 << rng.integers(8)
        path.write_bytes(bytes(hurt))
        try:
            found = Vectors.load(path)
        except ValueError as error:
            said.append(str(error))
        else:
            assert found.fingerprint == before.fingerprint  # in bytes that say nothing
    assert len(said) > 40
    assert all(len(line.splitlines()) == 1 for line in said)


@pytest.fixture
def index(tmp_path):
    folder, about = IndexFolder(tmp_path / "index"), About("f" * 64, 3, None)
    folder.lock()
    with folder.store(about, read_only=False) as store:
        folder.write(about)
        store.add([EmbeddedPhoto(Path(f"/p/{i}.jpg"), "s", content, VECTORS[i]) for i, content in enumerate(CONTENTS)])
        store.set_labels({"/p/1.jpg": "owl", "/p/7.jpg": "later"})
    folder.unlock()
    return folder, about, next((tmp_path / "index").glob("*.sqlite"))


def entries(index):
    folder, about, _ = index
    with folder.store(about, read_only=True) as store:
        return store.entries(), store.labels(), store.search(VECTORS[:1], top=6)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE vectors SET vector = zeroblob(12) WHERE content = (SELECT min(content) FROM vectors)",
        "UPDATE photos SET path = '/p/x.jpg' WHERE path = '/p/1.jpg'",
        "UPDATE labels SET label = 'owk'",
        "UPDATE photos SET content = (SELECT max(content) FROM vectors) WHERE path = '/p/1.jpg'",
        "DROP TRIGGER photos_out; DELETE FROM photos WHERE path = '/p/1.jpg'",
        "DROP TRIGGER labels_out; DELETE FROM labels WHERE path = '/p/1.jpg'",
        "DROP TRIGGER vectors_out; DELETE FROM vectors WHERE content = (SELECT max(content) FROM vectors)",
        "UPDATE photos SET path = 3.5 WHERE path = '/p/1.jpg'",
    ],
)
def test_a_row_that_was_altered_or_lost_is_noticed(index, damage):
    connection = sqlite3.connect(index[2])
    connection.executescript(damage)
    connection.close()
    with pytest.raises(StoreError, match=r"\.sqlite: .*: it is damaged: restore a copy, or remove it$"):
        entries(index)


def test_a_damaged_schema_is_an_error_of_one_line(index):
    data = index[2].read_bytes()
    place = data.index(b"WHERE name = 'photos'") + len("WHERE name = 'photos")
    index[2].write_bytes(data[:place] + b"%" + data[place + 1 :])
    with pytest.raises(
        StoreError, match=r"malformed database schema .*: it is damaged: restore a copy, or remove it$"
    ) as refused:
        entries(index)
    assert len(str(refused.value).splitlines()) == 1


def test_photos_that_are_replaced_and_removed_keep_the_count(index):
    folder, about, _ = index
    with folder.store(about, read_only=False) as store:
        store.add([EmbeddedPhoto(Path("/p/1.jpg"), "changed", CONTENTS[2], None)])
        store.set_labels({"/p/1.jpg": "wren"})
        store.remove(["/p/3.jpg", "/p/7.jpg"])
    found, labels, _ = entries(index)
    assert [entry.path for entry in found] == ["/p/0.jpg", "/p/1.jpg", "/p/2.jpg", "/p/4.jpg", "/p/5.jpg"]
    assert labels == {"/p/1.jpg": "wren"}


def test_a_damaged_index_file_is_refused(index):
    folder, _, _ = index
    about = folder.path / "index.json"
    about.write_text(about.read_text().replace('"dimensions": 3', '"dimensions": 2'))
    with pytest.raises(ValueError, match=r"index.json is damaged or of another version \(its checksum is wrong\)"):
        folder.about()


def test_a_vector_that_is_gone_is_an_error_of_one_line(tmp_path):
    with VectorStore(tmp_path / "a.sqlite", fingerprint="f", dimensions=3) as store:
        store.add([EmbeddedPhoto(Path("a.jpg"), "s", CONTENTS[0], VECTORS[0])])
        with pytest.raises(StoreError, match="1 vectors are missing: it is damaged"):
            store.vectors(CONTENTS[:2])


def test_a_store_killed_while_its_tables_were_made_is_completed(tmp_path):
    connection = sqlite3.connect(tmp_path / "a.sqlite")
    connection.execute("CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
    connection.close()
    with VectorStore(tmp_path / "a.sqlite", fingerprint="f", dimensions=3) as store:
        store.add([EmbeddedPhoto(Path("a.jpg"), "s", CONTENTS[0], VECTORS[0])])
        assert store.contents() == {CONTENTS[0]}


def test_a_damaged_record_of_an_arrangement_removes_nothing(tmp_path, caplog):
    from facetric.images import content_hash

    photo = tmp_path / "a.jpg"
    photo.write_bytes(b"picture")
    placed = Placed("first", photo, content_hash(b"picture").hex())
    arrange([placed], tmp_path / "sorted", "copy")
    record = tmp_path / "sorted" / RECORD
    record.write_text(record.read_text().replace("first", "fjrst"))
    arrange([Placed("second", photo, placed.content)], tmp_path / "sorted", "copy")
    assert (tmp_path / "sorted" / "first" / "a.jpg").exists()
    assert "is damaged (its checksum is wrong)" in caplog.text
