"""Photos of unseen classes in groups, the number of groups unknown: how good they are, and how fast corrections make them better.

    python benchmarks/grouping.py VALIDATION.npz TEST.npz [--seeds 10]
    python benchmarks/grouping.py --photos path/to/CUB_200_2011/images

With files of vectors and labels (`Embeddings.save` writes such files), of classes that the network was not trained on: the
validation classes calibrate; 100 test classes are clustered, and piles of 8 of them with 15 photos each. HDBSCAN is given the
size of its smallest cluster that suits the validation classes best, k-means the true number of classes. Then ten rounds of ten
answers each, on the piles: the questions that `facetric cluster` asks, the same questions at random, and random pairs.

With photos in class folders: 120 of them, of 8 of the last 100 classes, copied under new names into one folder, grouped by one
command without a number, and timed.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.cluster import HDBSCAN, KMeans

from facetric.clustering import Agreement, calibrate
from facetric.groups.decisions import Constraints
from facetric.groups.grouping import Question, grouped
from facetric.photos.listing import list_photos

N_ROUNDS, N_ANSWERS = 10, 10


def load(path):
    stored = np.load(path)
    vectors = stored["vectors"] / np.linalg.norm(stored["vectors"], axis=1, keepdims=True)
    return vectors.astype(np.float32), np.unique(stored["labels"], return_inverse=True)[1]


def hdbscan(vectors, size):
    labels = HDBSCAN(size, min_samples=1, copy=True).fit(vectors).labels_
    return np.where(labels < 0, labels.max() + 1 + np.arange(len(labels)), labels)  # noise is alone


def pile(classes, seed, n_classes=8, per_class=15):
    rng = np.random.default_rng(seed)
    enough = np.flatnonzero(np.bincount(classes) >= per_class)
    if not len(enough):
        enough, per_class = np.flatnonzero(np.bincount(classes) >= 8), 8
    chosen = rng.choice(enough, n_classes, replace=False)
    return np.concatenate([rng.choice(np.flatnonzero(classes == c), per_class, replace=False) for c in chosen])


def show(name, agreements):
    fields = ("bcubed_precision", "bcubed_recall", "bcubed_f1", "pairwise_precision", "pairwise_recall", "pairwise_f1")
    means = [100 * np.mean([getattr(agreement, field) for agreement in agreements]) for field in fields]
    print(f"| {name} | " + " | ".join(f"{value:.1f}" for value in means) + " |", flush=True)


def compare(validation, test, seeds):
    known, known_classes = validation
    vectors, classes = test
    calibration = calibrate(known, known_classes)
    few = pile(known_classes, 0)
    size = max((2, 3, 4, 5, 8), key=lambda s: Agreement.of(known_classes[few], hdbscan(known[few], s)).score)
    piles = [pile(classes, seed) for seed in range(seeds)]
    methods = {
        "`facetric cluster`": lambda x, y: calibration.clusterer().fit_predict(x),
        f"HDBSCAN, smallest cluster {size}": lambda x, y: hdbscan(x, size),
        "k-means, true k": lambda x, y: KMeans(len(np.unique(y)), n_init=3, random_state=0).fit_predict(x),
    }
    print("| | BCubed P | R | F1 | pairwise P | R | F1 |\n|---|---|---|---|---|---|---|")
    for name, cluster in methods.items():
        show(f"{name}, 8 classes", [Agreement.of(classes[rows], cluster(vectors[rows], classes[rows])) for rows in piles])
    some = np.isin(classes, np.unique(classes)[:100])
    for name, cluster in methods.items():
        show(f"{name}, 100 classes", [Agreement.of(classes[some], cluster(vectors[some], classes[some]))])
    promise = calibration.promise(vectors[some], calibration.clusterer().fit_predict(vectors[some]))
    print(f"promised of 100 classes: pairwise precision {promise.precision}, recall {promise.recall:.0%}\n")
    return calibration, piles


def corrected(vectors, classes, calibration, order, seed):
    """Pairwise F1 before and after each round."""
    rng, must, cannot, scores = np.random.default_rng(seed), [], [], []
    for number in range(N_ROUNDS + 1):
        found = grouped(vectors, calibration.clusterer(), Constraints(tuple(must), tuple(cannot)))
        scores.append(Agreement.of(classes, found.labels).pairwise_f1)
        if number == N_ROUNDS:
            return scores
        questions = list(found.questions)
        if order == "random order":
            questions = [questions[i] for i in rng.permutation(len(questions))]
        if order == "random pairs":
            questions = [Question(*map(int, rng.choice(len(vectors), 2, replace=False)), 0.0) for _ in range(N_ANSWERS)]
        for question in questions[:N_ANSWERS]:
            pair = question.first, question.second
            (must if classes[pair[0]] == classes[pair[1]] else cannot).append(pair)
    return scores


def corrections(test, calibration, piles):
    vectors, classes = test
    print("| pairwise F1 after round | " + " | ".join(map(str, range(N_ROUNDS + 1))) + " |\n|---|" + "---|" * (N_ROUNDS + 1))
    for order in ("most doubtful", "random order", "random pairs"):
        runs = [corrected(vectors[rows], classes[rows], calibration, order, seed) for seed, rows in enumerate(piles)]
        print(f"| {order} | " + " | ".join(f"{100 * value:.1f}" for value in np.mean(runs, axis=0)) + " |", flush=True)


def one_command(root, run):
    listed = list_photos(root)
    names = np.array([path.parts[0] for path in listed.photos])
    classes = np.unique(names, return_inverse=True)[1]
    rows = np.flatnonzero(classes >= classes.max() + 1 - 100)
    rows = np.random.default_rng(0).permutation(rows[pile(classes[rows], 0)])
    with tempfile.TemporaryDirectory() as folder:
        photos, output = Path(folder) / "photos", Path(folder) / "groups"
        photos.mkdir()
        for i, row in enumerate(rows):
            shutil.copy(listed.root / listed.photos[row], photos / f"IMG_{i:03}{listed.photos[row].suffix}")
        command = ["cluster", str(photos), "--output", str(output), "--copy-to", str(Path(folder) / "sorted")]
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "facetric", *command, *(["--model", str(run)] if run else [])], check=True)
        seconds = time.perf_counter() - started
        clusters = [int(line.split(",")[1]) for line in (output / "clusters.csv").read_text().splitlines()[1:]]
    print(f"{len(rows)} photos: {seconds:.1f} s, {Agreement.of(classes[rows], clusters)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", metavar="VALIDATION.npz TEST.npz")
    parser.add_argument("--seeds", type=int, default=10, help="piles of 8 classes")
    parser.add_argument("--photos", type=Path, help="class folders, for the timed command")
    parser.add_argument("--model", type=Path, help="the run for the timed command")
    arguments = parser.parse_args()
    if arguments.files:
        validation, test = map(load, arguments.files)
        calibration, piles = compare(validation, test, arguments.seeds)
        corrections(test, calibration, piles)
    if arguments.photos:
        one_command(arguments.photos, arguments.model)


if __name__ == "__main__":
    main()
