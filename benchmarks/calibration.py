"""Clustering with k unknown: settings chosen on some classes, tried on others, method by method and pile by pile.

    python benchmarks/calibration.py FEATURES.npz [--seeds 3]

FEATURES.npz holds vectors and labels (benchmarks/raw_features.py writes such files). Half of the classes choose each method's
setting by the mean BCubed F1 over resampled piles, the other half show what it is worth; "own best" is the best setting of each pile,
which nobody knows beforehand. With the calibration of `facetric.clustering` at the end: what it promised and what came true.
"""

import argparse

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist
from sklearn.cluster import DBSCAN, HDBSCAN, KMeans

from facetric.clustering import Agreement, FacilityLocation, calibrate
from facetric.clustering.calibration import resampled_piles


def alone(labels):
    """Noise points as clusters of one."""
    return np.where(labels < 0, labels.max() + 1 + np.arange(len(labels)), labels)


def facility(squared):
    costs = np.geomspace(0.05, 40, 40)
    return lambda x: {s.opening_cost: s.labels for s in FacilityLocation(squared=squared).path(x, costs)}


def tree(kind):
    def clusters(x):
        merges = linkage(pdist(x), kind)
        return {t: fcluster(merges, t, "distance") for t in np.linspace(0.2, 1.45, 50)}

    return clusters


METHODS = {
    "facility location": facility(False),
    "facility location, squared": facility(True),
    "average linkage": tree("average"),
    "complete linkage": tree("complete"),
    "threshold components (single linkage)": tree("single"),
    "HDBSCAN": lambda x: {
        m: alone(HDBSCAN(min_cluster_size=m, min_samples=1, copy=True).fit(x).labels_) for m in (2, 3, 4, 5, 8)
    },
    "DBSCAN": lambda x: {e: alone(DBSCAN(eps=e, min_samples=2).fit(x).labels_) for e in np.linspace(0.3, 1.2, 37)},
}


def scores(cluster, vectors, classes, seeds):
    """{setting: {pile: mean BCubed F1}}"""
    found = {}
    for seed in range(seeds):
        for pile, rows in resampled_piles(classes, seed).items():
            for setting, clusters in cluster(vectors[rows]).items():
                value = Agreement.of(classes[rows], clusters.astype(np.int64)).bcubed_f1
                found.setdefault(setting, {}).setdefault(pile, []).append(value)
    return {setting: {pile: float(np.mean(values)) for pile, values in piles.items()} for setting, piles in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    stored = np.load(options.features)
    vectors, labels = stored["vectors"], np.unique(stored["labels"], return_inverse=True)[1]
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    known = labels < (labels.max() + 1) // 2
    halves = [(vectors[half], np.unique(labels[half], return_inverse=True)[1]) for half in (known, ~known)]
    piles = list(resampled_piles(halves[0][1], 0))
    print(f"{options.features}: {known.sum():,} points choose, {(~known).sum():,} points of other classes show; BCubed F1, %")
    print(f"{'':40} {'setting':>8} " + " ".join(f"{pile:>22}" for pile in [*piles, "mean"]) + "   (own best)")
    for name, cluster in METHODS.items():
        chosen, shown = (scores(cluster, *half, options.seeds) for half in halves)
        best = max(chosen, key=lambda setting: np.mean(list(chosen[setting].values())))
        cells, limits = [shown[best][pile] for pile in piles], [max(s[pile] for s in shown.values()) for pile in piles]
        pairs = zip([*cells, np.mean(cells)], [*limits, np.mean(limits)], strict=True)
        row = " ".join(f"{100 * a:>14.1f} ({100 * b:>5.1f})" for a, b in pairs)
        print(f"{name:40} {best:>8.3g} {row}", flush=True)
    k_means(*halves[1], piles, options.seeds)
    promise(halves, options.seeds)


def k_means(vectors, classes, piles, seeds):
    found = {pile: [] for pile in piles}
    for seed in range(seeds):
        for pile, rows in resampled_piles(classes, seed).items():
            k = len(np.unique(classes[rows]))
            clusters = KMeans(k, n_init=1, random_state=seed).fit_predict(vectors[rows])
            found[pile].append(Agreement.of(classes[rows], clusters.astype(np.int64)).bcubed_f1)
    cells = [np.mean(found[pile]) for pile in piles]
    print(f"{'k-means, true k':40} {'':>8} " + " ".join(f"{100 * cell:>14.1f}        " for cell in [*cells, np.mean(cells)]))


def promise(halves, seeds):
    (vectors, classes), (others, their_classes) = halves
    found = calibrate(vectors, classes, n_repeats=seeds)
    print(f"\ncalibrate chose {found.method} at {found.threshold:.3g}; pairwise precision / recall in %, promised and real")
    for pile, promised in found.piles.items():
        real = []
        for seed in range(seeds):
            rows = resampled_piles(their_classes, seed)[pile]
            clusters = found.clusterer().fit_predict(others[rows])
            real.append(Agreement.of(their_classes[rows], clusters.astype(np.int64)))
        precision, recall = (100 * np.mean([getattr(r, f"pairwise_{x}") for r in real]) for x in ("precision", "recall"))
        print(
            f"  {pile:24} {100 * promised.pairwise_precision:5.1f} / {100 * promised.pairwise_recall:5.1f}   "
            f"{precision:5.1f} / {recall:5.1f}"
        )


if __name__ == "__main__":
    main()
