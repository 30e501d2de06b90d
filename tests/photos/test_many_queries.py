"""What is kept between searches: the same answers as without."""

import numpy as np

from facetric.photos import labels, open_collection
from photos.stores import DIM, embedded, sqlite_store


def test_the_version_changes_when_photos_or_labels_do_and_only_then(tmp_path):
    with sqlite_store(tmp_path) as writer, sqlite_store(tmp_path, read_only=True) as reader:
        seen = [reader.version()]
        for write in (
            lambda: writer.add([embedded("/a.jpg", np.ones(DIM))]),
            lambda: writer.set_labels({"/a.jpg": "bird"}),
            lambda: writer.remove(["/a.jpg"]),
        ):
            write()
            seen.append(reader.version())
            reader.search(np.ones((1, DIM), dtype=np.float32), top=1)
            assert reader.version() == seen[-1]
        assert len(set(seen)) == 4


class Directions:
    """Stands in for a network: the vectors of photos are put into the store by hand."""

    fingerprint, dim, run = "a" * 64, DIM, None


def test_precision_is_measured_once_until_the_index_changes(tmp_path, monkeypatch):
    index = open_collection(tmp_path / "i", Directions())
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(4, DIM))

    def add(start):
        with index.writing() as store:
            photos = [(f"/{i}.jpg", centers[i % 4] + 0.1 * rng.normal(size=DIM)) for i in range(start, start + 40)]
            store.set_labels({path: f"class {int(path[1:-4]) % 4}" for path, _ in photos})
            store.add([embedded(path, vector) for path, vector in photos])

    add(0)
    counts = []
    measure = labels._cases
    monkeypatch.setattr("facetric.photos.labels._cases", lambda *x, **y: counts.append(1) or measure(*x, **y))
    for _ in range(3):
        (match,) = index.search(centers[0], classify=True)
        assert match.vote.label == "class 0"
        assert match.vote.expected_precision > 0.8
    assert len(counts) == 1
    add(40)
    index.search(centers[0], classify=True)
    assert len(counts) == 2
