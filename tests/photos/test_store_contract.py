"""What every store of an index promises: each photo once, exact search, labels, removal, other processes."""

import signal
from pathlib import Path

import numpy as np
import pytest

import processes
from oracles.nearest_photos import nearest_photos
from photos.stores import DIM, STORES, embedded


@pytest.fixture(params=STORES)
def opened(request, tmp_path):
    """Opens the store of this test, as often as it is called."""
    found = []

    def open_store(**options):
        found.append(STORES[request.param](tmp_path, **options))
        return found[-1]

    yield open_store
    for store in found:
        store.close()


def directions(n, seed=0):
    """Vectors with small whole coordinates: many are equal, many equally similar."""
    vectors = np.random.default_rng(seed).integers(-1, 2, (n, DIM)).astype(np.float32)
    vectors[:, 0] += (vectors == 0).all(axis=1)
    return vectors


def fill(store, n, *, seed=0, labels=("owl", "wren", "")):
    vectors = directions(n, seed)
    paths = [f"/photos/{i * 7919 % n:05}.jpg" for i in range(n)]  # not in the order of their paths
    store.set_labels({path: labels[i % len(labels)] for i, path in enumerate(paths)})
    store.add(embedded(path, vector) for path, vector in zip(paths, vectors, strict=True))
    return [(path, labels[i % len(labels)], vectors[i]) for i, path in enumerate(paths)]


def found(hits):
    return [(hit.entry.path, hit.similarity) for hit in hits]


def units(photos):
    """As float32 rows of length one, which is what is compared."""
    return [
        (path, label, (v.astype(np.float64) / np.linalg.norm(v.astype(np.float64))).astype(np.float32))
        for path, label, v in photos
    ]


@pytest.mark.parametrize("label", [None, "owl"])
@pytest.mark.parametrize("top", [1, 10, 60])
def test_search_is_brute_force_ties_by_path(opened, top, label):
    photos = fill(opened(), 301)
    queries = directions(12, seed=1)
    results = opened(read_only=True).search(queries, top=top, label=label)
    for query, hits in zip(queries, results, strict=True):
        ((_, _, unit),) = units([("", "", query)])
        expected = nearest_photos(units(photos), unit, top, label)
        np.testing.assert_allclose([s for _, s in found(hits)], [s for _, s in expected], atol=1e-12)
        rounded = [(-round(s, 12), path) for path, s in nearest_photos(units(photos), unit, 301, label)]
        assert [path for path, _ in found(hits)] == [path for _, path in sorted(rounded)[:top]]


def test_more_than_there_are_gives_all(opened):
    store = opened()
    fill(store, 5)
    assert len(store.search(directions(1), top=50)[0]) == 5
    assert store.search(directions(1), top=5, label="heron") == [[]]


def test_an_empty_store_finds_nothing(opened):
    assert opened().search(directions(2), top=3) == [[], []]
    assert opened().entries() == []


def test_a_photo_that_is_added_again_replaces_itself(opened):
    store = opened()
    fill(store, 30)
    store.add([embedded("/photos/00003.jpg", np.eye(DIM)[2], content=b"changed".ljust(16))])
    assert len(store.entries()) == 30
    hits = store.search(np.eye(DIM, dtype=np.float32)[2:3], top=30)[0]
    assert {hit.entry.path: hit.similarity for hit in hits}["/photos/00003.jpg"] == 1.0


def test_a_known_content_needs_no_vector(opened):
    store = opened()
    store.add([embedded("/a.jpg", np.eye(DIM)[0], content=b"same".ljust(16))])
    store.add([embedded("/b.jpg", None, content=b"same".ljust(16))])
    assert found(store.search(np.eye(DIM, dtype=np.float32)[:1], top=5)[0]) == [("/a.jpg", 1.0), ("/b.jpg", 1.0)]
    assert store.known([b"same".ljust(16), b"other".ljust(16)]) == {b"same".ljust(16)}
    assert store.states(map(Path, ["/a.jpg", "/b.jpg", "/c.jpg"])) == {
        "/a.jpg": ("state", b"same".ljust(16)),
        "/b.jpg": ("state", b"same".ljust(16)),
    }


def test_a_removed_photo_is_forgotten_and_its_copy_is_not(opened):
    store = opened()
    same = b"same".ljust(16)
    store.set_labels({"/a.jpg": "owl", "/b.jpg": "wren"})
    store.add([embedded("/a.jpg", np.eye(DIM)[0], content=same), embedded("/b.jpg", None, content=same)])
    store.add([embedded("/c.jpg", np.eye(DIM)[1])])
    store.remove(["/a.jpg", "/c.jpg", "/never there.jpg"])
    assert [(entry.path, entry.label) for entry in store.entries()] == [("/b.jpg", "wren")]
    assert store.known([same, embedded("/c.jpg", None).content]) == {same}
    store.add([embedded("/a.jpg", None, content=same)])
    assert [entry.label for entry in store.entries()] == ["", "wren"]  # its label is forgotten too


def test_labels_change_without_the_vectors_and_an_empty_one_takes_it_away(opened):
    store = opened()
    fill(store, 9)
    store.set_labels({"/photos/00000.jpg": "heron", "/photos/00001.jpg": ""})
    labels = {entry.path: entry.label for entry in store.entries()}
    assert (labels["/photos/00000.jpg"], labels["/photos/00001.jpg"]) == ("heron", "")
    (hits,) = store.search(directions(1), top=9, label="heron")
    assert [hit.entry.path for hit in hits] == ["/photos/00000.jpg"]


def test_a_reader_sees_what_was_written_before_its_search(opened):
    writer = opened()
    fill(writer, 10)
    reader = opened(read_only=True)
    assert len(reader.search(directions(1), top=99)[0]) == 10
    writer.add([embedded("/new.jpg", np.ones(DIM))])
    assert len(reader.search(directions(1), top=99)[0]) == 11
    writer.remove(["/new.jpg"])
    assert len(reader.entries()) == 10


def test_vectors_come_back_to_the_last_bit(opened):
    store = opened()
    vectors = np.random.default_rng(0).normal(size=(20, DIM)).astype(np.float32)
    photos = [embedded(f"/{i}.jpg", vector) for i, vector in enumerate(vectors)]
    store.add(photos)
    np.testing.assert_array_equal(opened(read_only=True).vectors([photo.content for photo in photos[::-1]]), vectors[::-1])


def test_two_that_write_in_turn_lose_nothing(opened):
    first, second = opened(), opened()
    for i in range(6):
        (first, second)[i % 2].add([embedded(f"/{i}.jpg", np.eye(DIM)[i])])
    second.remove(["/0.jpg"])
    for store in (first, second):
        assert [entry.path for entry in store.entries()] == [f"/{i}.jpg" for i in range(1, 6)]


def write_for_ever(name, folder):
    """In a process that is killed."""
    store = STORES[name](Path(folder))
    for batch in range(1000):
        store.add(embedded(f"/{batch:04}/{i:02}.jpg", np.full(DIM, 1 + batch + i)) for i in range(20))
        print(batch, flush=True)


@pytest.mark.parametrize("name", STORES)
def test_killed_in_the_middle_it_holds_every_finished_batch_once(name, tmp_path):
    if name == "milvus":
        pytest.importorskip("milvus_lite")
    finished = set()
    for n_batches in (3, 8):
        printed, errors = tmp_path / f"{n_batches} printed", tmp_path / f"{n_batches} errors"
        child = processes.start(
            name, tmp_path, function="photos.test_store_contract:write_for_ever", log=printed, errors=str(errors)
        )
        processes.wait_for(lambda file=printed, n=n_batches: file.is_file() and file.read_text().count("\n") >= n)
        child.send_signal(signal.SIGKILL)
        assert processes.wait(child) == -signal.SIGKILL, errors.read_text()
        finished |= set(map(int, printed.read_text().split()))
    store = STORES[name](tmp_path)
    found = [entry.path for entry in store.entries()]
    store.close()
    assert len(found) == len(set(found))
    assert {f"/{batch:04}/{i:02}.jpg" for batch in finished for i in range(20)} <= set(found)


def test_no_cosine_is_above_one(opened):
    store = opened()
    vectors = np.random.default_rng(0).normal(size=(200, DIM)).astype(np.float32)
    store.add(embedded(f"/{i:03}.jpg", vector) for i, vector in enumerate(vectors))
    best = [hits[0].similarity for hits in store.search(vectors, top=1)]
    assert max(best) == 1.0
    assert min(best) > 1 - 1e-6


def test_what_is_read_in_one_moment_is_of_one_moment(tmp_path):
    """A group or a vote needs the photos, and then their vectors; another process may remove some in between."""
    writer, reader = STORES["sqlite"](tmp_path), STORES["sqlite"](tmp_path, read_only=True)
    fill(writer, 30)
    with reader.moment():
        contents = [entry.content for entry in reader.entries()]
        writer.remove([entry.path for entry in writer.entries()[:20]])
        assert reader.vectors(contents).shape == (30, DIM)
        assert len(reader.search(directions(1), top=99)[0]) == 30
    assert len(reader.search(directions(1), top=99)[0]) == len(reader.entries()) == 10
    writer.close()
    reader.close()


def test_a_client_of_milvus_is_closed_when_its_collection_cannot_be_opened(tmp_path, monkeypatch):
    pytest.importorskip("milvus_lite")
    import pymilvus

    closed, close = [], pymilvus.MilvusClient.close
    monkeypatch.setattr(pymilvus.MilvusClient, "close", lambda client: closed.append(client) or close(client))
    with pytest.raises(OSError, match="Milvus: "):
        STORES["milvus"](tmp_path, read_only=True)  # there is none
    assert len(closed) == 1


def test_vectors_that_leave_milvus_meanwhile_are_one_line(tmp_path):
    store = STORES["milvus"](tmp_path)
    with store, pytest.raises(OSError, match="Milvus: 1 vector left the collection meanwhile: try again"):
        store.vectors([b"gone".ljust(16)])
