"""Evaluation at the size of the Online Products test set, against pytorch-metric-learning's AccuracyCalculator on the same
arrays, and retrieval alone at 300,000 images.

    python benchmarks/evaluation.py [--quick | --retrieval]

Each side runs in a process of its own, one after the other, so that peak memories are separate. Times are without compilation
(ours) and without imports (both), on the clock and, in brackets, of all processor cores. The data is synthetic: unit vectors
around class centers.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np

PRODUCTS = (60_502, 11_316)
LARGE = (300_000, 56_000)
DIMENSION, NOISE = 64, 1.0
KS = (1, 10, 100, 1000)


def data(n, n_classes, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)])
    rng.shuffle(labels)
    vectors = rng.standard_normal((n_classes, DIMENSION), dtype=np.float32)[labels]
    vectors += NOISE * rng.standard_normal((n, DIMENSION), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors, labels


def objective(vectors, clusters):
    """Σ squared distances to the mean of the own cluster, the k-means objective of any clustering."""
    _, codes = np.unique(clusters, return_inverse=True)
    means = np.zeros((codes.max() + 1, vectors.shape[1]))
    np.add.at(means, codes, vectors.astype(np.float64))
    means /= np.bincount(codes)[:, None]
    return float(((vectors - means[codes]) ** 2).sum())


def timed(function):
    """The result, and (seconds, seconds of processor time). The second hardly depends on what else the machine does."""
    wall, processor = time.perf_counter(), time.process_time()
    result = function()
    return result, (time.perf_counter() - wall, time.process_time() - processor)


def peak_gib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def ours(n, n_classes, clusters):
    from facetric.clustering import kmeans
    from facetric.evaluation import evaluate
    from facetric.metrics import retrieval, vmeasure

    evaluate(*data(2000, 400), ks=(1, 10), facility=False, n_restarts=1)  # compiles
    vectors, labels = data(n, n_classes)
    loaded = peak_gib()
    scores, seconds = timed(lambda: retrieval(vectors, labels, ks=KS))
    found = {
        "retrieval": seconds,
        "recall_at_1": scores.recall_at_k[1],
        "r_precision": scores.r_precision,
        "map_at_r": scores.map_at_r,
        "loaded": loaded,
    }
    if clusters:
        (clustering, score), found["clustering"] = timed(lambda: _cluster(kmeans, vmeasure, vectors, labels, n_classes))
        found |= {"objective": objective(vectors, clustering.labels), "vmeasure": score, "iterations": clustering.n_iterations}
    return found


def _cluster(kmeans, vmeasure, vectors, labels, n_classes):
    clustering = kmeans(vectors, n_classes, seed=0)
    return clustering, vmeasure(labels, clustering.labels)


def theirs(n, n_classes, clusters):
    import torch
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import FaissKMeans

    kept = {}

    def kept_kmeans(x, n_clusters):
        kept["clusters"] = FaissKMeans()(x, n_clusters)
        return kept["clusters"]

    vectors, labels = map(torch.from_numpy, data(n, n_classes))
    loaded = peak_gib()
    names = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
    options = {"device": torch.device("cpu"), "k": "max_bin_count", "kmeans_func": kept_kmeans}
    scores, seconds = timed(lambda: AccuracyCalculator(include=names, **options).get_accuracy(vectors, labels))
    found = {
        "retrieval": seconds,
        "recall_at_1": scores["precision_at_1"],
        "r_precision": scores["r_precision"],
        "map_at_r": scores["mean_average_precision_at_r"],
        "loaded": loaded,
    }
    if clusters:
        score, found["clustering"] = timed(lambda: AccuracyCalculator(include=("NMI",), **options).get_accuracy(vectors, labels))
        found |= {"objective": objective(vectors.numpy(), kept["clusters"].numpy()), "vmeasure": score["NMI"]}
    return found


def in_a_process(side, n, n_classes, clusters):
    command = [sys.executable, __file__, "--side", side, str(n), str(n_classes), str(int(clusters))]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])


def report(n, n_classes):
    print(f"{n:,} × {DIMENSION}, {n_classes:,} classes, synthetic (noise {NOISE}); one process each")
    sides = {side: in_a_process(side, n, n_classes, True) for side in ("facetric", "pytorch-metric-learning")}
    print(f"{'':24} {'retrieval':>17} {'k-means + NMI':>17} {'objective':>10} {'peak memory':>12} {'R@1':>9} {'MAP@R':>9}")
    for side, found in sides.items():
        times = " ".join(f"{wall:>7.1f} ({processor:>5.1f}) s" for wall, processor in (found["retrieval"], found["clustering"]))
        print(
            f"{side:24} {times} {found['objective']:>10.1f} {found['peak']:>8.2f} GiB {found['recall_at_1']:>9.6f} "
            f"{found['map_at_r']:>9.6f}"
        )
    a, b = sides.values()
    faster = {step: " ".join(ratios(b[step], a[step])) for step in ("retrieval", "clustering")}
    n_different = round(abs(a["recall_at_1"] - b["recall_at_1"]) * n)
    print(
        f"ratios: retrieval {faster['retrieval']} (ours with Recall@1, 10, 100, 1000), k-means + NMI {faster['clustering']} at "
        f"{a['objective'] / b['objective']:.4f} of the objective ({a['iterations']} iterations), memory "
        f"{b['peak'] / a['peak']:.1f}x less; Recall@1 {f'differs by {n_different} queries' if n_different else 'identical'}; "
        f"V-measure {a['vmeasure']:.4f} and {b['vmeasure']:.4f}"
    )


def ratios(slow, fast):
    return f"{slow[0] / fast[0]:.1f}x faster", f"({slow[1] / fast[1]:.1f}x)"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, and no 300,000")
    parser.add_argument("--retrieval", action="store_true", help="retrieval alone, in turns, twice")
    parser.add_argument("--side", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        side, n, n_classes, clusters = options.side
        run = ours if side == "facetric" else theirs
        found = run(int(n), int(n_classes), clusters == "1")
        print(json.dumps({**found, "peak": peak_gib()}))
        return
    if options.retrieval:
        for _ in range(2):
            slow, fast = (in_a_process(side, *PRODUCTS, False) for side in ("pytorch-metric-learning", "facetric"))
            a, b = fast["retrieval"], slow["retrieval"]
            times = f"retrieval {a[0]:.1f} ({a[1]:.1f}) s, pytorch-metric-learning {b[0]:.1f} ({b[1]:.1f}) s"
            print(f"{times}: {' '.join(ratios(b, a))}")
        return
    if options.quick:
        report(PRODUCTS[0] // 10, PRODUCTS[1] // 10)
        return
    report(*PRODUCTS)
    found = in_a_process("facetric", *LARGE, False)
    wall, processor = found["retrieval"]
    print(
        f"\n{LARGE[0]:,} × {DIMENSION}, {LARGE[1]:,} classes: retrieval alone in {wall:.1f} ({processor:.1f}) s, peak memory "
        f"{found['peak']:.2f} GiB ({found['loaded']:.2f} GiB before it started), Recall@1 {found['recall_at_1']:.4f}"
    )


if __name__ == "__main__":
    main()
