"""Photos of unseen classes in groups, the number of groups unknown: how good they are, and how fast corrections make them better.

    facetric embed path/to/CUB_200_2011/images --output cub.npz
    python benchmarks/grouping.py cub.npz [--seeds 10]
    python benchmarks/grouping.py --glyphs [--model runs/glyphs]
    python benchmarks/grouping.py --photos path/to/CUB_200_2011/images [--model runs/cub]

CUB, test classes 101 to 200. Without training: the features of the packaged network, calibrated on classes 1 to 100. With
training: a closed-form head fitted to classes 1 to 50, calibrated on 51 to 100. Glyphs: 100 test characters with 15 pictures
each; the packaged network is calibrated on 60 characters of the training half, a run on its validation characters.

Piles of 8 test classes with 15 photos each are drawn, and all test classes are clustered at once. HDBSCAN is given the size of
its smallest cluster that suits the calibrating classes best, k-means the true number of classes. Then ten rounds of ten answers
each, on the piles: the questions that `facetric cluster` asks, the same questions at random, and random pairs.

With photos in class folders: 120 of them, of 8 of the last 100 classes, copied under new names into one folder, grouped by one
command without a number, and timed.
"""

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.cluster import HDBSCAN, KMeans

import facetric
from facetric.clustering import calibrate
from facetric.clustering.expected import Agreement
from facetric.embedder import Vectors
from facetric.embedder.heads import closed_form_head
from facetric.images.listing import list_images
from facetric.images.readers import load_dataset
from facetric.photos.decisions import Constraints
from facetric.photos.grouping import Question, grouped
from facetric.runs import Run

N_ROUNDS, N_ANSWERS = 10, 10


def cub(path):
    """(name, calibrating, test) for features as they are, and for a head; classes are numbered in the names of their folders."""
    found = Vectors.load(path)
    classes = np.array([int(name.split("/")[0][:3]) for name in found.names])
    vectors = found.vectors / np.linalg.norm(found.vectors, axis=1, keepdims=True)
    fitting, calibrating, test = classes <= 50, (classes > 50) & (classes <= 100), classes > 100
    yield "CUB, without training", (vectors[classes <= 100], classes[classes <= 100]), (vectors[test], classes[test])
    head = closed_form_head(found.vectors[fitting], classes[fitting], 64)
    embedded = head(found.vectors).astype(np.float32)
    embedded /= np.linalg.norm(embedded, axis=1, keepdims=True)
    yield "CUB, a head trained on 50 classes", (embedded[calibrating], classes[calibrating]), (embedded[test], classes[test])


def glyphs(run):
    """(name, calibrating, test) for the packaged network, or a run on glyphs."""
    model, dataset = facetric.load(run), load_dataset("glyphs")
    known = dataset.select("train") if run is None else Run(run).images("validation")[0]
    parts = []
    for part, n_classes in ((known, 60), (dataset.select("test"), 100)):
        enough = np.flatnonzero(np.bincount(part.labels) >= 15)
        chosen = np.random.default_rng(0).permutation(enough)[:n_classes]
        rows = np.concatenate([np.flatnonzero(part.labels == c)[:15] for c in chosen])
        parts.append((model.encode([np.asarray(part.images[row]) for row in rows]), part.labels[rows]))
    yield f"glyphs, {'without training' if run is None else 'trained'}", *parts


def hdbscan(vectors, size):
    labels = HDBSCAN(size, min_samples=1, copy=True).fit(vectors).labels_
    return np.where(labels < 0, labels.max() + 1 + np.arange(len(labels)), labels)  # noise is alone


def pile(classes, seed, n_classes=8, per_class=15):
    rng = np.random.default_rng(seed)
    enough = np.flatnonzero(np.bincount(classes) >= per_class)
    chosen = rng.choice(enough, n_classes, replace=False)
    return np.concatenate([rng.choice(np.flatnonzero(classes == c), per_class, replace=False) for c in chosen])


def show(name, agreements):
    fields = ("bcubed_precision", "bcubed_recall", "bcubed_f1", "pairwise_precision", "pairwise_recall", "pairwise_f1")
    columns = [[100 * getattr(agreement, field) for agreement in agreements] for field in fields]
    shown = [f"{np.mean(c):.1f}" + (f" ± {np.std(c):.1f}" if len(c) > 1 else "") for c in columns]
    print(f"| {name} | " + " | ".join(shown) + " |", flush=True)


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
    for name, cluster in methods.items():
        show(f"{name}, {len(np.unique(classes))} classes", [Agreement.of(classes, cluster(vectors, classes))])
    expected = calibration.expected(vectors, calibration.clusterer().fit_predict(vectors))
    print(f"expected of all classes: pairwise precision {expected.precision}, recall {expected.recall:.0%}\n")
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
    for order in ("most ambiguous", "random order", "random pairs"):
        runs = [corrected(vectors[rows], classes[rows], calibration, order, seed) for seed, rows in enumerate(piles)]
        print(f"| {order} | " + " | ".join(f"{100 * value:.1f}" for value in np.mean(runs, axis=0)) + " |", flush=True)
    print()


def one_command(root, run):
    listed = list_images(root)
    names = np.array([path.parts[0] for path in listed.images])
    classes = np.unique(names, return_inverse=True)[1]
    rows = np.flatnonzero(classes >= classes.max() + 1 - 100)
    rows = np.random.default_rng(0).permutation(rows[pile(classes[rows], 0)])
    with tempfile.TemporaryDirectory() as folder:
        photos, output = Path(folder) / "photos", Path(folder) / "groups"
        photos.mkdir()
        for i, row in enumerate(rows):
            shutil.copy(listed.root / listed.images[row], photos / f"IMG_{i:03}{listed.images[row].suffix}")
        command = ["cluster", str(photos), "--output", str(output), "--copy-to", str(Path(folder) / "sorted")]
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "facetric", *command, *(["--model", str(run)] if run else [])], check=True)
        seconds, used = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        clusters = [int(line.split(",")[1]) for line in (output / "clusters.csv").read_text().splitlines()[1:]]
    cpu = used.ru_utime + used.ru_stime
    print(f"{len(rows)} photos: {seconds:.1f} s on the clock, {cpu:.1f} s of processor time")
    print(Agreement.of(classes[rows], clusters))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vectors", type=Path, nargs="?", help="of CUB-200-2011, by facetric embed without --model")
    parser.add_argument("--glyphs", action="store_true", help="the built-in characters")
    parser.add_argument("--photos", type=Path, help="class folders, for the timed command")
    parser.add_argument("--model", type=Path, help="a run, with --glyphs or --photos")
    parser.add_argument("--seeds", type=int, default=10, help="piles of 8 classes")
    arguments = parser.parse_args()
    if arguments.photos:
        one_command(arguments.photos, arguments.model)
        return
    for name, calibrating, test in glyphs(arguments.model) if arguments.glyphs else cub(arguments.vectors):
        print(f"{name}: mean ± standard deviation of {arguments.seeds} piles, in %")
        calibration, piles = compare(calibrating, test, arguments.seeds)
        corrections(test, calibration, piles)


if __name__ == "__main__":
    main()
