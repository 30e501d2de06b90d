"""The circle: labels → model → groups of unseen photos → corrections → named groups and the old labels → a better model?

    facetric embed path/to/CUB_200_2011/images --output cub.npz
    python benchmarks/circle.py cub.npz [--seeds 0 1 2] [--rounds 20]

The file holds features of the packaged network; folders are classes.
Classes are drawn by a seed: 40 with labels (10 of them teach what belongs together), 30 unsorted ones of which 20 photos each are
grouped, 60 that nothing is fitted to. Models are closed-form heads, what `facetric train` starts from and refits, here of one
shrinkage. Answers come from the true labels: ten a round, in the order of the page. Then every group of five photos or more gets
the name of its most frequent class, right or wrong, and the head is fitted again; "confirmed" takes only the photos that stand
for an answer (the two of a "same"). "true labels" fits to the grouped photos as if all were sorted: what corrections could give
at most.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from facetric.clustering import PairLinkage, calibrate
from facetric.embedder import Vectors
from facetric.embedder.heads import USUAL_SHRINKAGE, closed_form_head
from facetric.metrics import clustering_scores
from facetric.metrics.retrieval import retrieval
from facetric.photos.decisions import Constraints
from facetric.photos.grouping import grouped

N_LABELED, N_TEACHING, N_UNSORTED, N_UNSEEN = 40, 10, 30, 60
PER_CLASS, N_ANSWERS, SMALLEST_NAMED = 20, 10, 5


def load(path):
    found = Vectors.load(path)
    return found.vectors, np.unique([name.split("/")[0] for name in found.names], return_inverse=True)[1]


def named(labels, classes):
    """The names that people would give: −1 for photos of small groups, else the most frequent class of the group."""
    names = np.full(len(labels), -1)
    for group in range(labels.max() + 1):
        members = np.flatnonzero(labels == group)
        if len(members) >= SMALLEST_NAMED:
            names[members] = np.bincount(classes[members]).argmax()
    return names


def corrected(vectors, classes, model, n_rounds):
    """The groups before and after the answers, and which photos were said to be the same as another."""
    must, cannot = [], []
    first = found = grouped(vectors, PairLinkage(model), Constraints())
    for _ in range(n_rounds):
        for a, b in found.questions[:N_ANSWERS].tolist():
            (must if classes[a] == classes[b] else cannot).append((a, b))
        found = grouped(vectors, PairLinkage(model), Constraints(tuple(must), tuple(cannot)))
    confirmed = np.zeros(len(vectors), dtype=bool)
    confirmed[[photo for pair in must for photo in pair]] = True
    return first.labels, found.labels, confirmed


def scores(head, teaching, features, classes):
    """MAP@R, R@1 and, by what the teaching classes teach, pairwise F1; in %."""
    vectors = head(features)
    found = retrieval(vectors, classes, ks=(1,))
    groups = PairLinkage(calibrate(head(teaching[0]), teaching[1])).fit_predict(vectors)
    return 100 * np.array([found.map_at_r, found.recall_at_k[1], clustering_scores(classes, groups).pairwise_f1])


def round_trip(features, labels, seed, n_rounds, dim):
    rng = np.random.default_rng(seed)
    order = rng.permutation(np.unique(labels))
    ends = np.cumsum([N_LABELED - N_TEACHING, N_TEACHING, N_UNSORTED, N_UNSEEN])
    old, teaching, new, unseen = (np.flatnonzero(np.isin(labels, part)) for part in np.split(order, ends)[:4])
    shuffled = rng.permutation(new)
    rank = np.array([np.sum(labels[shuffled[:i]] == labels[row]) for i, row in enumerate(shuffled)])
    unsorted, later = shuffled[rank < PER_CLASS], shuffled[rank >= PER_CLASS]

    def fitted(rows, names):
        return closed_form_head(features[rows], names, dim, shrinkage=USUAL_SHRINKAGE)

    start = fitted(old, labels[old])
    model = calibrate(start(features[teaching]), labels[teaching])
    before, after, sure = corrected(start(features[unsorted]), labels[unsorted], model, n_rounds)
    names = named(after, labels[unsorted])
    rows, names, sure = unsorted[names >= 0], names[names >= 0], sure[names >= 0]
    heads = {
        "old labels": start,
        "named groups alone": fitted(rows, names),
        "old labels + named groups": fitted(np.concatenate([old, rows]), np.concatenate([labels[old], names])),
        "old labels + confirmed": fitted(np.concatenate([old, rows[sure]]), np.concatenate([labels[old], names[sure]])),
        "old labels + true labels": fitted(np.concatenate([old, unsorted]), labels[np.concatenate([old, unsorted])]),
        "no head": lambda x: x / np.linalg.norm(x, axis=1, keepdims=True),
    }
    known = features[teaching], labels[teaching]
    table = {
        name: np.concatenate([scores(head, known, features[part], labels[part]) for part in (unseen, later)])
        for name, head in heads.items()
    }
    facts = [clustering_scores(labels[unsorted], groups).pairwise_f1 for groups in (before, after)]
    return table, [*facts, len(rows), len(np.unique(names)), np.mean(names == labels[rows])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vectors", type=Path, help="of photos in class folders, by facetric embed without --model")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=20, help="of ten answers each")
    parser.add_argument("--dim", type=int, default=64, help="of the heads")
    options = parser.parse_args()
    features, labels = load(options.vectors)
    tables = []
    for seed in options.seeds:
        started = time.perf_counter()
        table, (before, after, n_named, n_names, right) = round_trip(features, labels, seed, options.rounds, options.dim)
        tables.append(table)
        print(
            f"seed {seed}: groups of {N_UNSORTED * PER_CLASS} photos, pairwise F1 {100 * before:.1f}, after "
            f"{options.rounds * N_ANSWERS} answers {100 * after:.1f}; {n_named} photos named, {n_names} names, "
            f"{100 * right:.0f}% rightly ({time.perf_counter() - started:.0f} s)",
            flush=True,
        )
        show(tables)


def show(tables):
    print("| head fitted to | unseen classes: MAP@R | R@1 | pairwise F1 | new photos of the named: MAP@R | R@1 | pairwise F1 |")
    print("|---|" + "---:|" * 6)
    for name in tables[0]:
        runs = np.array([table[name] for table in tables])
        gained = runs - np.array([table["old labels"] for table in tables])
        columns = zip(runs.mean(0), gained.mean(0), gained.std(0), strict=True)
        print(
            f"| {name} | " + " | ".join(f"{mean:.1f} ({gain:+.1f} ± {sd:.1f})" for mean, gain, sd in columns) + " |", flush=True
        )


if __name__ == "__main__":
    main()
