"""`facetric search --classify`: is the expected precision reached, and does "unknown" protect from photos of other classes?

    python benchmarks/classify.py VALIDATION.npz TEST.npz [--seeds 3]

The files hold vectors and labels (`Embeddings.save` writes such files). The validation classes calibrate: they give the
similarity below which a photo is unknown. Of the test classes, half are in the index, with half of their photos; the other
half are searched for, and all photos of the classes that are not in the index.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from facetric.clustering import calibrate
from facetric.index.sqlite_store import SqliteStore
from facetric.index.vote import voted
from facetric.photos.store import EmbeddedPhoto

TOP = 10
BANDS = ((0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.01))  # of the promised precision


def load(path):
    stored = np.load(path)
    vectors = stored["vectors"] / np.linalg.norm(stored["vectors"], axis=1, keepdims=True)
    return vectors.astype(np.float32), stored["labels"]


def answers(vectors, labels, limit, seed):
    """For every query: its class, whether that is in the index, the voted label (None: unknown) and the promised precision."""
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.unique(labels))
    known = np.isin(labels, classes[: len(classes) // 2])
    in_index = known & (rng.random(len(labels)) < 0.5)
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "index.sqlite", fingerprint="f" * 64, dimensions=vectors.shape[1])
        rows = np.flatnonzero(in_index).tolist()
        store.set_labels({f"/{row:06}.jpg": str(labels[row]) for row in rows})
        store.add(EmbeddedPhoto(Path(f"/{row:06}.jpg"), "", row.to_bytes(16, "big"), vectors[row]) for row in rows)
        queries = np.flatnonzero(~in_index)
        found = store.search(vectors[queries], top=TOP)
        hits = [[hit for hit in some if hit.similarity >= limit] for some in found]
        votes = voted(store, hits, top=TOP, limit=limit)
        store.close()
    return [
        (
            str(labels[row]),
            bool(known[row]),
            None if vote is None else vote.label,
            0.0 if vote is None else vote.expected_precision,
        )
        for row, vote in zip(queries, votes, strict=True)
    ]


def mean(values):
    values = list(values)
    return f"{100 * np.mean(values):.1f}" if values else "–"


def show(name, found):
    known = [one for one in found if one[1]]
    other = [one for one in found if not one[1]]
    voted_known = [one for one in known if one[2] is not None]
    print(f"\n{name}: {len(known):,} photos of classes in the index, {len(other):,} of others")
    print(f"called unknown: {mean(one[2] is None for one in known)}% and {mean(one[2] is None for one in other)}%")
    print("| promised | photos of the index's classes | promised, mean | reached | with photos of other classes, reached |")
    print("|---|---:|---:|---:|---:|")
    for low, high in (*BANDS, (0.0, 1.01)):
        band = [one for one in voted_known if low <= one[3] < high]
        everyone = [one for one in found if one[2] is not None and low <= one[3] < high]
        promised, reached = mean(one[3] for one in band), mean(one[0] == one[2] for one in band)
        title = "all" if (low, high) == (0.0, 1.01) else f"{low:.0%} to {min(high, 1):.0%}"
        print(f"| {title} | {len(band):,} | {promised} | {reached} | {mean(one[0] == one[2] for one in everyone)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs=2, metavar=("VALIDATION.npz", "TEST.npz"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threshold", type=float, help="the calibrated distance, where it is known already")
    options = parser.parse_args()
    vectors, labels = load(options.files[1])
    threshold = options.threshold or calibrate(*load(options.files[0])).threshold
    limit = 1 - threshold**2 / 2
    for name, bound in ((f"unknown below a similarity of {limit:.3f}, from the calibration", limit), ("no limit", -1.0)):
        show(name, [one for seed in range(options.seeds) for one in answers(vectors, labels, bound, seed)])


if __name__ == "__main__":
    main()
