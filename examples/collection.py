"""A collection of photos from Python: add, search, group. Runs in seconds: python examples/collection.py"""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

import facetric


def write_photos(folder: Path) -> None:
    """Twelve photos of three kinds: soft patterns, each with a little noise."""
    rng = np.random.default_rng(0)
    for kind in range(3):
        pattern = rng.integers(0, 256, (6, 8, 3))
        for i in range(4):
            pixels = np.clip(pattern + rng.normal(0, 10, pattern.shape), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).resize((320, 240), Image.Resampling.BICUBIC).save(folder / f"kind{kind}_{i}.jpg")


with TemporaryDirectory() as place:
    photos = Path(place) / "photos"
    photos.mkdir()
    write_photos(photos)

    album = facetric.open_collection(Path(place) / "album", facetric.load())
    print(album.add(photos).n_new, "photos embedded;", album.add(photos).n_new, "the second time")

    (match,) = album.search(photos / "kind1_0.jpg", top=4)
    for hit in match.hits:
        print(f"{hit.similarity:.3f}  {Path(hit.entry.path).name}")

    groups = album.cluster(n_clusters=3)
    for cluster in range(len(groups.medoids)):
        print(f"group {cluster + 1}:", *sorted(path.name for path in groups.members(cluster)))
    album.close()
