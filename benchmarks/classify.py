"""`facetric search --classify`: is the expected precision reached, and does "unknown" protect from photos of other classes?

    facetric embed path/to/CUB_200_2011/images --output cub.npz
    python benchmarks/classify.py cub.npz [--seeds 5] [--classes 101 200]

Vectors of the packaged network, photos in class folders. Of the test classes, half are in the collection, with half of their
photos; the other half are searched for, and all photos of the classes that are not in it. Known and unknown photos count the
same, however many there are: half of the photos are unknown, as `--unknown-fraction 0.5` says. Beside it: the label of most of
the ten nearest neighbors, and their similarity as the one sign of an unknown photo.
"""

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

from facetric.embedder import Vectors
from facetric.photos.labels import Votes
from facetric.photos.sqlite_store import SqliteStore
from facetric.photos.store import Model, NewPhoto

BANDS = ((0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.01))  # of the expected precision
REQUIRED = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


def answers(vectors, labels, unknown_fraction, seed):
    """A row per query: is its class known? is the answer right? its expected precision; similarity; is the neighbors' right?"""
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.unique(labels))
    known = np.isin(labels, classes[: len(classes) // 2])
    inside = known & (rng.random(len(labels)) < 0.5)
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(folder, Model("f" * 64, vectors.shape[1], None))
        rows = np.flatnonzero(inside).tolist()
        store.set_labels({f"/{row:06}.jpg": str(labels[row]) for row in rows})
        store.add(NewPhoto(Path(f"/{row:06}.jpg"), "", row.to_bytes(16, "big"), vectors[row]) for row in rows)
        queries = np.flatnonzero(~inside)
        found = store.search(vectors[queries], top=10)
        votes = Votes(store).of(vectors[queries], unknown_fraction=unknown_fraction)
        store.close()
    neighbors = [Counter(hit.entry.label for hit in some).most_common(1)[0][0] for some in found]
    return np.array(
        [
            (known[row], vote.label == str(labels[row]), vote.expected_precision, some[0].similarity, near == str(labels[row]))
            for row, vote, some, near in zip(queries, votes, found, neighbors, strict=True)
        ],
        dtype=float,
    )


def mean(values, weights):
    return f"{100 * np.average(values, weights=weights):.1f}" if weights.sum() > 0 else "–"


def bands(rows, weights):
    print("| expected | share of the photos | expected, mean | reached |\n|---|---:|---:|---:|")
    for low, high in (*BANDS, (0.0, 1.01)):
        inside = (rows[:, 2] >= low) & (rows[:, 2] < high)
        title = "all" if (low, high) == (0.0, 1.01) else f"{low:.0%} to {min(high, 1):.0%}"
        share, expected, reached = mean(inside, weights), *(mean(rows[:, column], weights * inside) for column in (2, 1))
        print(f"| {title} | {share} | {expected} | {reached} |", flush=True)


def curve(rows, weights):
    """What is answered when a precision is required, and when a similarity is, the one that answers as many known photos."""
    known = rows[:, 0] > 0
    print("| required precision | known answered | of other classes, unknown | right, of the answers |", end="")
    print(" by similarity alone: of other classes, unknown |\n|" + "---:|" * 5)
    for required in REQUIRED:
        answered = rows[:, 2] >= required
        alone = rows[:, 3] >= np.quantile(rows[known, 3], 1 - answered[known].mean())
        shown = [f"{100 * answered[known].mean():.1f}", f"{100 * (~answered[~known]).mean():.1f}"]
        shown += [mean(rows[:, 1], weights * answered), f"{100 * (~alone[~known]).mean():.1f}"]
        print(f"| {required:.0%} | {' | '.join(shown)} |", flush=True)
    for name, column in (("expected precision", 2), ("similarity alone", 3)):
        refused = np.quantile(rows[~known, column], 0.9)
        print(f"known or not, by {name}: area under the curve {roc_auc_score(known, rows[:, column]):.3f}; ", end="")
        print(f"known photos answered while 90% of the others are refused: {(rows[known, column] > refused).mean():.1%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vectors", type=Path, help="by facetric embed, photos in class folders")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--classes", type=int, nargs=2, default=(101, 200), help="the first and the last")
    options = parser.parse_args()
    found = Vectors.load(options.vectors)
    labels = np.unique([Path(name).parent.as_posix() for name in found.names], return_inverse=True)[1] + 1
    rows = (labels >= options.classes[0]) & (labels <= options.classes[1])
    vectors, labels = found.vectors[rows], labels[rows]
    for unknown_fraction in (0.5, 0.0):
        all_rows = np.concatenate([answers(vectors, labels, unknown_fraction, seed) for seed in range(options.seeds)])
        known = all_rows[:, 0] > 0
        weights = np.where(known, (1 - unknown_fraction) / known.sum(), unknown_fraction / (~known).sum())
        counts = f"{known.sum():,} photos of classes in the collection, {(~known).sum():,} of others"
        print(f"\n--unknown-fraction {unknown_fraction}: {counts}")
        print(f"right of the known ones: {all_rows[known, 1].mean():.1%}, ten nearest neighbors {all_rows[known, 4].mean():.1%}")
        bands(all_rows, weights)
        if unknown_fraction:
            curve(all_rows, weights)


if __name__ == "__main__":
    main()
