"""Clustering with k unknown: settings chosen on some classes, tried on others, method by method and pile by pile.

    python benchmarks/calibration.py FEATURES.npz [--seeds 3]

FEATURES.npz holds vectors and labels (benchmarks/raw_features.py writes such files). Half of the classes choose each method's
setting by the mean score over resampled piles (the mean of BCubed F1 and pairwise F1), the other half show what it is worth. The
table gives BCubed F1 / pairwise F1, and in brackets the best mean score of settings chosen for each pile, which nobody knows
beforehand. At the end, what the calibration of `facetric.clustering` promised and what came true.
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
    "HDBSCAN": lambda x: {m: alone(HDBSCAN(m, min_samples=1, copy=True).fit(x).labels_) for m in (2, 3, 4, 5, 8)},
    "DBSCAN": lambda x: {e: alone(DBSCAN(eps=e, min_samples=2).fit(x).labels_) for e in np.linspace(0.3, 1.2, 37)},
}


def scores(cluster, vectors, classes, seeds):
    """{setting: {pile: [Agreement per seed]}}"""
    found = {}
    for seed in range(seeds):
        for pile, rows in resampled_piles(classes, seed).items():
            for setting, clusters in cluster(vectors[rows]).items():
                agreement = Agreement.of(classes[rows], clusters.astype(np.int64))
                found.setdefault(setting, {}).setdefault(pile, []).append(agreement)
    return found


def mean(agreements, name="score"):
    return float(np.mean([getattr(agreement, name) for agreement in agreements]))


def show(name, setting, piles, shown, limit=""):
    cells = [f"{100 * mean(shown[pile], 'bcubed_f1'):5.1f} / {100 * mean(shown[pile], 'pairwise_f1'):5.1f}" for pile in piles]
    total = 100 * np.mean([mean(shown[pile]) for pile in piles])
    print(f"{name:38} {setting:>7} " + " ".join(f"{cell:>20}" for cell in cells) + f" {total:12.1f} {limit}", flush=True)


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
    print(f"{options.features}: {known.sum():,} points choose, {(~known).sum():,} of other classes show; BCubed / pairwise F1")
    print(f"{'':38} {'setting':>7} " + " ".join(f"{pile:>20}" for pile in piles) + f" {'mean score':>12}")
    for name, cluster in METHODS.items():
        chosen, shown = (scores(cluster, *half, options.seeds) for half in halves)
        best = max(chosen, key=lambda setting: np.mean([mean(chosen[setting][pile]) for pile in piles]))
        limit = 100 * np.mean([max(mean(s[pile]) for s in shown.values()) for pile in piles])
        show(name, f"{best:.3g}", piles, shown[best], f"({limit:.1f})")
    k_means(*halves[1], piles, options.seeds)
    promise(halves, options.seeds)


def k_means(vectors, classes, piles, seeds):
    found = {pile: [] for pile in piles}
    for seed in range(seeds):
        for pile, rows in resampled_piles(classes, seed).items():
            k = len(np.unique(classes[rows]))
            clusters = KMeans(k, n_init=1, random_state=seed).fit_predict(vectors[rows])
            found[pile].append(Agreement.of(classes[rows], clusters.astype(np.int64)))
    show("k-means, true k", "", piles, found)


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
