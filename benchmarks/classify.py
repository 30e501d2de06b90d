"""`facetric search --classify`: is the expected precision reached, and does "unknown" protect from photos of other classes?

    facetric embed path/to/CUB_200_2011/images --output cub.npz
    python benchmarks/classify.py cub.npz [--seeds 5]

The packaged network and its calibration. Of the test classes (101 to 200), half are in the index, with half of their photos; the
other half are searched for, and all photos of the classes that are not in the index. Known and unknown photos count the
same, however many there are: half of the photos are unknown, as `--unknown-fraction 0.5` says.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

import facetric
from facetric.embedder import Vectors
from facetric.photos.query import Votes
from facetric.photos.sqlite_store import SqliteStore
from facetric.photos.store import Model, NewPhoto

TOP = 10
BANDS = ((0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.01))  # of the expected precision
REQUIRED = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


def answers(vectors, labels, limit, unknown_fraction, seed):
    """A row per query: is its class in the index? is the vote right? the precision that is expected; the nearest's similarity."""
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.unique(labels))
    known = np.isin(labels, classes[: len(classes) // 2])
    in_index = known & (rng.random(len(labels)) < 0.5)
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(folder, Model("f" * 64, vectors.shape[1], None))
        rows = np.flatnonzero(in_index).tolist()
        store.set_labels({f"/{row:06}.jpg": str(labels[row]) for row in rows})
        store.add(NewPhoto(Path(f"/{row:06}.jpg"), "", row.to_bytes(16, "big"), vectors[row]) for row in rows)
        queries = np.flatnonzero(~in_index)
        found = store.search(vectors[queries], top=TOP)
        near = [[hit for hit in some if hit.similarity >= limit] for some in found]
        votes = Votes(store).of(near, top=TOP, limit=limit, unknown_fraction=unknown_fraction)
        store.close()
    return np.array(
        [
            (
                known[row],
                vote is not None and vote.label == str(labels[row]),
                vote.expected_precision if vote else 0.0,
                some[0].similarity,
            )
            for row, vote, some in zip(queries, votes, found, strict=True)
        ]
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
    print(" by similarity alone: required | of other classes, unknown | right, of the answers |\n|" + "---:|" * 7)
    for required in REQUIRED:
        answered = rows[:, 2] >= required
        similar = np.quantile(rows[known, 3], 1 - answered[known].mean())
        alone = rows[:, 3] >= similar
        shown = [f"{100 * answered[known].mean():.1f}"]
        for some in (answered, alone):
            shown += [f"{100 * (~some[~known]).mean():.1f}", mean(rows[:, 1], weights * some)]
        print(f"| {required:.0%} | {' | '.join(shown[:3])} | {similar:.3f} | {' | '.join(shown[3:])} |", flush=True)
    print(f"known or not, area under the curve: {roc_auc_score(known, rows[:, 2]):.3f}, ", end="")
    print(f"by similarity alone {roc_auc_score(known, rows[:, 3]):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vectors", type=Path, help="of CUB-200-2011, by facetric embed without --model")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--classes", type=int, nargs=2, default=(101, 200), help="the first and the last")
    options = parser.parse_args()
    found = Vectors.load(options.vectors)
    labels = np.array([int(path.split("/")[0][:3]) for path in found.names])
    rows = (labels >= options.classes[0]) & (labels <= options.classes[1])
    vectors, labels = found.vectors[rows], labels[rows]
    limit = 1 - facetric.load().calibration.threshold ** 2 / 2
    for unknown_fraction in (0.5, 0.0):
        all_rows = np.concatenate([answers(vectors, labels, limit, unknown_fraction, seed) for seed in range(options.seeds)])
        known = all_rows[:, 0] > 0
        weights = np.where(known, (1 - unknown_fraction) / known.sum(), unknown_fraction / (~known).sum())
        counts = f"{known.sum():,} photos of classes in the index, {(~known).sum():,} of others"
        print(f"\n--unknown-fraction {unknown_fraction}: {counts}")
        print(f"nothing reaches the calibrated similarity of {limit:.3f}: ", end="")
        print(", ".join(f"{mean(all_rows[part, 3] < limit, np.ones(part.sum()))}%" for part in (known, ~known)))
        bands(all_rows, weights)
        if unknown_fraction:
            curve(all_rows, weights)


if __name__ == "__main__":
    main()
