"""Vectors of photos that were damaged on disk, in a file or in a store: refused in one line, never used."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from facetric.embedder import Vectors
from facetric.photos import open_collection
from facetric.photos.arrangement import RECORD, arrange
from facetric.photos.decisions import DecidedPhoto, Decision, Decisions
from facetric.photos.sqlite_store import SqliteStore
from facetric.photos.store import Look, Model, NewPhoto, StoreError, store_errors

VECTORS = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
CONTENTS = [bytes([i]) * 16 for i in range(6)]
MODEL = Model("f" * 64, 3, None)


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
def folder(tmp_path):
    """A collection of six photos."""
    with SqliteStore(str(tmp_path), MODEL) as store:
        store.make_current()
        store.add([NewPhoto(Path(f"/p/{i}.jpg"), "s", content, VECTORS[i]) for i, content in enumerate(CONTENTS)])
        store.set_labels({"/p/1.jpg": "owl", "/p/7.jpg": "later"})
    return tmp_path


def opened(folder):
    return SqliteStore(str(folder), MODEL, read_only=True)


def test_a_damaged_page_of_the_file_is_noticed_in_one_line(folder):
    """Where SQLite keeps its own structure; `index status` has it look at all of it."""
    file = folder / "collection.sqlite"
    data = file.read_bytes()
    for page in range(1, len(data) // 4096):
        start = page * 4096
        file.write_bytes(data[:start] + b"\xff" * 100 + data[start + 100 :])
        with pytest.raises(StoreError) as refused, opened(folder) as store:
            store.check()
        assert str(refused.value).endswith(": it is damaged: restore a copy, or remove it")
        assert len(str(refused.value).splitlines()) == 1


def test_a_damaged_schema_is_an_error_of_one_line(folder):
    file = folder / "collection.sqlite"
    data = file.read_bytes()
    place = data.index(b"CREATE TABLE photos (")
    file.write_bytes(data[:place] + b"%" + data[place + 1 :])
    with pytest.raises(
        StoreError, match=r"malformed database schema .*: it is damaged: restore a copy, or remove it$"
    ) as refused:
        SqliteStore.recorded(str(folder))
    assert len(str(refused.value).splitlines()) == 1


def test_photos_that_are_replaced_and_removed_leave_nothing_behind(folder):
    with SqliteStore(str(folder), MODEL) as store:
        store.add([NewPhoto(Path("/p/1.jpg"), "changed", CONTENTS[2], None)])
        store.set_labels({"/p/1.jpg": "wren"})
        store.remove(["/p/3.jpg", "/p/7.jpg"])
        store.check()
    with opened(folder) as store:
        found = store.entries()
        assert store.known(CONTENTS) == {CONTENTS[i] for i in (0, 2, 4, 5)}
    assert [entry.path for entry in found] == ["/p/0.jpg", "/p/1.jpg", "/p/2.jpg", "/p/4.jpg", "/p/5.jpg"]
    assert [entry.label for entry in found] == ["", "wren", "", "", ""]


def test_vectors_of_several_models_live_in_one_file(folder):
    other = Model("g" * 64, 2, "runs/other")
    with SqliteStore(str(folder), other) as store:
        assert (store.entries(), store.known(CONTENTS)) == ([], set())
        store.add([NewPhoto(Path("/p/1.jpg"), "s", CONTENTS[1], np.ones(2, dtype=np.float32))])
        assert [entry.path for entry in store.entries()] == ["/p/1.jpg"]
        assert SqliteStore.recorded(str(folder)) == MODEL
        store.make_current()
    assert SqliteStore.recorded(str(folder)) == other
    with opened(folder) as store:
        np.testing.assert_array_equal(store.vectors(CONTENTS), VECTORS)


@pytest.mark.parametrize("version", [1, 9])
def test_a_file_of_another_version_is_refused_in_one_line(folder, version):
    with sqlite3.connect(folder / "collection.sqlite") as connection:
        connection.execute("UPDATE about SET value = ? WHERE name = 'format'", (f"facetric collection {version}",))
    with pytest.raises(
        ValueError, match=rf"is of another version \(facetric collection {version}\): make a new one with `facetric index add"
    ):
        SqliteStore.recorded(str(folder))


def test_a_vector_that_is_gone_is_an_error_of_one_line(folder):
    with opened(folder) as store, pytest.raises(StoreError, match="1 vector missing: it is damaged"):
        store.vectors([*CONTENTS, b"gone"])


def test_a_store_killed_while_its_tables_were_made_is_completed(tmp_path):
    sqlite3.connect(tmp_path / "collection.sqlite").execute("PRAGMA journal_mode = WAL").connection.close()
    assert SqliteStore.recorded(str(tmp_path)) is None
    with SqliteStore(str(tmp_path), MODEL) as store:
        store.add([NewPhoto(Path("a.jpg"), "s", CONTENTS[0], VECTORS[0])])
        assert store.known() == {CONTENTS[0]}


def test_a_damaged_record_of_an_arrangement_removes_nothing(tmp_path, caplog):
    from facetric.images import content_hash

    photo = tmp_path / "a.jpg"
    photo.write_bytes(b"picture")
    content = content_hash(b"picture").hex()
    arrange([("first", photo, content)], tmp_path / "sorted", "copy")
    record = tmp_path / "sorted" / RECORD
    record.write_text(record.read_text().replace("first", "fjrst"))
    arrange([("second", photo, content)], tmp_path / "sorted", "copy")
    assert (tmp_path / "sorted" / "first" / "a.jpg").exists()
    assert "is damaged (its checksum is wrong)" in caplog.text


LOOK = Look(4, 4, 100, bytes(32 * 32), bytes(4 * 4 * 2), b"")


@pytest.fixture
def album(tmp_path):
    """A collection of six photos with looks and a decision, as `open_collection` gives it."""
    content = CONTENTS[0].hex()
    with SqliteStore(str(tmp_path), MODEL) as store:
        store.make_current()
        store.add([NewPhoto(Path(f"/p/{i}.jpg"), "s", own, VECTORS[i], LOOK) for i, own in enumerate(CONTENTS)])
        store.set_labels({"/p/1.jpg": "owl"})
        store.decide(lambda _: Decisions((Decision("reject", (DecidedPhoto(content, "0.jpg"),)),)))
    return tmp_path


def all_that_reads(folder):
    """What somebody does with a collection, each by its own."""
    index = open_collection(folder)
    with closing(index):
        yield from (
            lambda: index.nearest(VECTORS, top=3),
            index.status,
            index.decisions,
            lambda: [index.thumbnail(content) for content in CONTENTS],
            lambda: index._store().vectors(CONTENTS),
            lambda: index._store().looks(CONTENTS),
        )


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE vectors SET vector = x'00000000'",
        "UPDATE vectors SET vector = 'text'",
        "UPDATE vectors SET vector = x'00' WHERE rowid = 3",
        "UPDATE models SET dim = 2",
        "UPDATE models SET dim = 'x'",
        "UPDATE about SET value = 'x' WHERE name = 'decisions'",
        "UPDATE about SET value = '[1]' WHERE name = 'decisions'",
        "UPDATE about SET value = replace(value, 'reject', 'rejekt') WHERE name = 'decisions'",
        "UPDATE about SET value = 'x' WHERE name = 'version'",
        "DELETE FROM about WHERE name = 'version'",
        "DELETE FROM about",
        "UPDATE photos SET path = 'p/0.jpg' WHERE path = '/p/0.jpg'",
        "UPDATE photos SET path = x'00' WHERE path = '/p/0.jpg'",
        "UPDATE labels SET label = x'00'",
        "UPDATE looks SET gray = x'00'",
        "UPDATE looks SET colors = 3",
    ],
)
def test_values_that_facetric_did_not_write_are_one_line_of_its_own_words(album, damage):
    with closing(sqlite3.connect(album / "collection.sqlite")) as connection, connection:
        assert connection.execute(damage).rowcount
    said = []
    for read in all_that_reads(album):
        try:
            read()
        except StoreError as error:
            said.append(str(error))
    line = (
        f"{album / 'collection.sqlite'}: it holds values that facetric did not write: it is damaged: restore a copy, or remove it"
    )
    assert set(said) == {line}


def test_a_damaged_thumbnail_is_made_again(album):
    with closing(sqlite3.connect(album / "collection.sqlite")) as connection, connection:
        connection.execute("UPDATE looks SET thumbnail = x'ffd8ff00'")
    with closing(open_collection(album)) as index:
        assert index.thumbnail(CONTENTS[0]) is None


def test_only_what_is_damaged_is_to_go_away(folder, tmp_path):
    """SQLite's own errors, each with its way out."""
    said = {}
    store = SqliteStore(str(folder), MODEL)
    store._connection.execute("PRAGMA busy_timeout = 0")
    with closing(sqlite3.connect(folder / "collection.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError) as refused:
            store.note("a", "b")
    said["locked"] = str(refused.value)
    store.close()
    with pytest.raises(StoreError) as refused:
        store.version()
    said["closed"] = str(refused.value)
    with pytest.raises(StoreError) as refused:
        SqliteStore(str(tmp_path / "nowhere"), MODEL, read_only=True)
    said["not there"] = str(refused.value)
    in_one_thread = sqlite3.connect(folder / "collection.sqlite")
    with ThreadPoolExecutor(1) as pool, pytest.raises(StoreError) as refused, store_errors(folder):
        pool.submit(in_one_thread.execute, "SELECT 1").result()
    in_one_thread.close()
    said["another thread"] = str(refused.value)
    assert "another process holds it: try again" in said["locked"]
    assert "check its permissions" in said["not there"]
    for line in said.values():
        assert not any(word in line for word in ("remove", "delete", "free some space")), line
        assert len(line.splitlines()) == 1
