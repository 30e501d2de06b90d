"""Clustering with k unknown: settings chosen on validation classes, tried on test classes, method by method and pile by pile.

    python benchmarks/calibration.py VALIDATION.npz TEST.npz [--seeds 3] [--plot PICTURE.png]

Each file holds vectors and labels (`Embeddings.save` writes such files; benchmarks/raw_features.py shows how), of classes that
the network was not trained on. The validation classes choose each method's setting by the mean score over resampled piles (the
mean of BCubed F1 and pairwise F1), the test classes show what it is worth. The table gives BCubed F1 / pairwise F1, their mean
over the piles ± its standard deviation over the seeds, and in brackets the mean when the setting is chosen for each pile of the
test classes, which nobody knows beforehand. Below, and in the plot, what the calibration of `facetric.clustering` promised and
what came true.
"""

import argparse
from pathlib import Path

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist
from sklearn.cluster import DBSCAN, HDBSCAN, KMeans

from facetric.clustering import Agreement, AverageLinkage, FacilityLocation, calibrate, calibration
from facetric.clustering.calibration import resampled_piles

DISTANCES = np.geomspace(0.15, 1.45, 80)  # of unit vectors


def alone(labels):
    """Noise points as clusters of one."""
    return np.where(labels < 0, labels.max() + 1 + np.arange(len(labels)), labels)


def facility(squared):
    costs = np.geomspace(0.05, 40, 50)
    return lambda x: {s.opening_cost: s.labels for s in FacilityLocation(squared=squared).path(x, costs)}


def capped(x):
    """Facility location where nobody travels farther than a tenth of the opening cost."""
    distances = np.sqrt(np.maximum(2 - 2 * x.astype(np.float64) @ x.T, 0))
    np.fill_diagonal(distances, 0)
    found = {}
    for reach in DISTANCES[::5]:
        rows, columns = np.nonzero(distances <= reach)
        graph = coo_array((distances[rows, columns], (rows, columns)), shape=distances.shape).tocsr()
        found[reach] = FacilityLocation(opening_cost=10 * reach, metric="precomputed").fit(graph).labels_
    return found


def tree(kind):
    def clusters(x):
        merges = linkage(pdist(x), kind)
        return {t: fcluster(merges, t, "distance") for t in DISTANCES}

    return clusters


def finch(x):
    """Sarfraz, Sharma and Stiefelhagen 2019: points and their first neighbors are clusters, then the clusters' means, …"""
    labels, found = np.arange(len(x)), {}
    while True:
        means = np.zeros((labels.max() + 1, x.shape[1]))
        np.add.at(means, labels, x)
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        similarities = means @ means.T
        np.fill_diagonal(similarities, -np.inf)
        pairs = np.arange(len(means)), similarities.argmax(axis=1)
        graph = coo_array((np.ones(len(means)), pairs), shape=similarities.shape)
        n_clusters, parts = connected_components(graph, directed=False)
        if n_clusters in (1, len(means)):
            break
        labels = parts[labels]
        found[len(found)] = labels
    return found


METHODS = {
    "facetric AverageLinkage": lambda x: dict(zip(DISTANCES, AverageLinkage().path(x, DISTANCES), strict=True)),
    "facetric FacilityLocation": facility(False),
    "facetric FacilityLocation, squared": facility(True),
    "FacilityLocation, distance cap": capped,
    "average linkage": tree("average"),
    "complete linkage": tree("complete"),
    "threshold components (single linkage)": tree("single"),
    "HDBSCAN": lambda x: {m: alone(HDBSCAN(m, min_samples=1, copy=True).fit(x).labels_) for m in (2, 3, 4, 5, 8)},
    "DBSCAN": lambda x: {e: alone(DBSCAN(eps=e, min_samples=2).fit(x).labels_) for e in DISTANCES[::4]},
    "FINCH": finch,
}


def scores(cluster, vectors, classes, seeds):
    """{setting: {pile: [Agreement per seed]}}, settings that every pile has."""
    found, n_piles = {}, 0
    for seed in range(seeds):
        for pile, rows in resampled_piles(classes, seed).items():
            n_piles += 1
            for setting, clusters in cluster(vectors[rows]).items():
                agreement = Agreement.of(classes[rows], clusters.astype(np.int64))
                found.setdefault(setting, {}).setdefault(pile, []).append(agreement)
    return {setting: piles for setting, piles in found.items() if sum(map(len, piles.values())) == n_piles}


def mean(agreements, name="score"):
    return float(np.mean([getattr(agreement, name) for agreement in agreements]))


def show(name, setting, piles, shown, limit=""):
    cells = [f"{100 * mean(shown[pile], 'bcubed_f1'):5.1f} / {100 * mean(shown[pile], 'pairwise_f1'):5.1f}" for pile in piles]
    by_seed = [100 * np.mean([shown[pile][seed].score for pile in piles]) for seed in range(len(shown[piles[0]]))]
    total = f"{np.mean(by_seed):5.1f} ± {np.std(by_seed):3.1f}"
    print(f"{name:38} {setting:>7} " + " ".join(f"{cell:>20}" for cell in cells) + f" {total:>14} {limit}", flush=True)


def load(path):
    stored = np.load(path)
    vectors = stored["vectors"] / np.linalg.norm(stored["vectors"], axis=1, keepdims=True)
    return vectors.astype(np.float32), np.unique(stored["labels"], return_inverse=True)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("validation")
    parser.add_argument("test")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--plot", help="a picture of promised and real precision over all thresholds")
    parser.add_argument("--points", type=int, default=5000, help="larger piles are thinned by leaving out classes")
    parser.add_argument("--promise", action="store_true", help="leave out the table of methods")
    options = parser.parse_args()
    calibration.MAX_PILE = options.points
    chosen_by, shown_on = load(options.validation), load(options.test)
    if not options.promise:
        table(chosen_by, shown_on, options.seeds)
    promise(chosen_by, shown_on, options.seeds, options.plot, Path(options.test).stem)


def table(chosen_by, shown_on, seeds):
    piles = resampled_piles(shown_on[1], 0)
    sizes = ", ".join(f"{name} {len(rows):,}" for name, rows in piles.items())
    print(f"{len(chosen_by[0]):,} points choose, {len(shown_on[0]):,} of other classes show ({sizes}); BCubed F1 / pairwise F1")
    print(f"{'':38} {'setting':>7} " + " ".join(f"{pile:>20}" for pile in piles) + f" {'mean':>14}")
    piles = list(piles)
    for name, cluster in METHODS.items():
        chosen, shown = (scores(cluster, *classes, seeds) for classes in (chosen_by, shown_on))
        common = [setting for setting in chosen if setting in shown]
        best = max(common, key=lambda setting: np.mean([mean(chosen[setting][pile]) for pile in piles]))
        limit = 100 * np.mean([max(mean(s[pile]) for s in shown.values()) for pile in piles])
        show(name, f"{best:.3g}", piles, shown[best], f"({limit:.1f})")
    k_means(*shown_on, piles, seeds)


def k_means(vectors, classes, piles, seeds):
    found = {pile: [] for pile in piles}
    for seed in range(seeds):
        for pile, rows in resampled_piles(classes, seed).items():
            k = len(np.unique(classes[rows]))
            clusters = KMeans(k, n_init=1, random_state=seed).fit_predict(vectors[rows])
            found[pile].append(Agreement.of(classes[rows], clusters.astype(np.int64)))
    show("k-means, true k", "", piles, found)


def promise(chosen_by, shown_on, seeds, plot, title):
    found = calibrate(*chosen_by, n_repeats=seeds)
    others, classes = shown_on
    print(f"\ncalibrate chose {found.method} at {found.threshold:.3g}; pairwise precision / recall in %, promised and real")
    real = {}
    for seed in range(seeds):
        for pile, rows in resampled_piles(classes, seed).items():
            clusters = found.clusterer().fit_predict(others[rows])
            real.setdefault(pile, []).append(Agreement.of(classes[rows], clusters.astype(np.int64)))
    for pile, promised in found.piles.items():
        came_true = Agreement.mean(real[pile])
        print(
            f"  {pile:24} {100 * promised.pairwise_precision:5.1f} / {100 * promised.pairwise_recall:5.1f}   "
            f"{100 * came_true.pairwise_precision:5.1f} / {100 * came_true.pairwise_recall:5.1f}"
        )
    if plot:
        draw(calibrate(*chosen_by, method="average_linkage", n_repeats=seeds), shown_on, seeds, plot, title)


def draw(found, shown_on, seeds, path, title):
    """Promised and real pairwise precision at every step of average linkage, pile by pile."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    vectors, classes = shown_on
    thresholds = [step.threshold for step in found.steps]
    real = {}
    for seed in range(seeds):
        for pile, rows in resampled_piles(classes, seed).items():
            for step, clusters in enumerate(AverageLinkage().path(vectors[rows], thresholds)):
                real.setdefault(pile, {}).setdefault(step, []).append(Agreement.of(classes[rows], clusters))
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.6), sharey=True)
    for panel, name in zip(panels, ("precision", "recall"), strict=True):
        panel.plot([0, 1], [0, 1], color="0.7", linewidth=1, zorder=0)
        for pile, marker in zip(real, "osv^", strict=True):
            promised = [getattr(step.piles[pile], f"pairwise_{name}") for step in found.steps]
            kept = [getattr(Agreement.mean(agreements), f"pairwise_{name}") for agreements in real[pile].values()]
            (line,) = panel.plot(promised, kept, marker=marker, markersize=3, linewidth=0.8, label=pile)
            panel.plot(promised[found.position], kept[found.position], marker=marker, markersize=11, color=line.get_color())
        panel.set(xlabel=f"promised pairwise {name} (validation classes)", xlim=(0, 1.02), ylim=(0, 1.02), aspect="equal")
    panels[0].set_ylabel("real (test classes)")
    panels[0].legend(fontsize=8, title="pile; large: calibrated threshold", title_fontsize=8)
    figure.suptitle(f"Average linkage on {title}: promised and real")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
