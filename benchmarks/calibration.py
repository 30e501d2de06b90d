"""Clustering with k unknown: settings chosen on validation classes, tried on test classes, method by method and pile by pile.

    python benchmarks/calibration.py VALIDATION.npz TEST.npz [--many MANY.npz] [--seeds 3] [--plot PICTURE.png]

Each file holds vectors and labels (benchmarks/unseen_classes.py writes such files), of classes that the network was not trained
on. The validation classes choose each method's setting by the mean score over resampled piles (the mean of BCubed F1 and
pairwise F1), the test classes show what it is worth; the last rows have no setting to choose. The table gives BCubed F1 /
pairwise F1, their mean over the piles ± its standard deviation over the seeds, and in brackets the mean when the setting is
chosen for each pile of the test classes, which nobody knows beforehand. --many adds, at the same setting, a pile of 2,000
classes of another file, in a long tail from 20 to 2 as far as they have as many images, among one image each of all its other
classes. Below, and in the plot, the precision that the calibration of `facetric.clustering` expects of long-tailed resampled
sets of 20 to 200 test classes, and what came true.
"""

import argparse
from pathlib import Path

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist
from sklearn.cluster import DBSCAN, HDBSCAN, KMeans

from facetric.clustering import AverageLinkage, FacilityLocation, calibrate
from facetric.clustering.calibration import resampled_sets, rows_by_class
from facetric.clustering.expected import Agreement

N_CLASSES = (20, 50, 100, 200)  # of the resampled sets that precision is expected of
N_FINER = (0, 4, 8)  # steps of the calibration below its own threshold
DISTANCES = np.geomspace(0.15, 1.45, 80)  # of unit vectors
COSTS = np.geomspace(0.05, 40, 50)
MANY = 2000  # classes of the pile of --many


def alone(labels):
    """Noise points as clusters of one."""
    return np.where(labels < 0, labels.max() + 1 + np.arange(len(labels)), labels)


def facility(squared):
    def clusters(x, settings=COSTS):
        return {cost: FacilityLocation(opening_cost=cost, squared=squared).fit_predict(x) for cost in settings}

    return clusters


def tree(kind):
    def clusters(x, settings=DISTANCES):
        merges = linkage(pdist(x), kind)
        return {t: fcluster(merges, t, "distance") for t in settings}

    return clusters


def finch(x, settings=None):
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
    "facetric AverageLinkage": lambda x, settings=DISTANCES: {t: AverageLinkage(t).fit_predict(x) for t in settings},
    "facetric FacilityLocation": facility(False),
    "facetric FacilityLocation, squared": facility(True),
    "average linkage": tree("average"),
    "complete linkage": tree("complete"),
    "threshold components (single linkage)": tree("single"),
    "HDBSCAN": lambda x, settings=(2, 3, 4, 5, 8): {
        m: alone(HDBSCAN(m, min_samples=1, copy=True).fit(x).labels_) for m in settings
    },
    "DBSCAN": lambda x, settings=DISTANCES[::4]: {e: alone(DBSCAN(eps=e, min_samples=2).fit(x).labels_) for e in settings},
    "FINCH": finch,
}


def scores(cluster, vectors, classes, seeds, points):
    """{setting: {pile: [Agreement per seed]}}, settings that every pile has."""
    found, n_piles = {}, 0
    for seed in range(seeds):
        for pile, rows in resampled_sets(classes, seed, max_points=points).items():
            n_piles += 1
            for setting, clusters in cluster(vectors[rows]).items():
                agreement = Agreement.of(classes[rows], clusters.astype(np.int64))
                found.setdefault(setting, {}).setdefault(pile, []).append(agreement)
    return {setting: piles for setting, piles in found.items() if sum(map(len, piles.values())) == n_piles}


def mean(agreements, name="score"):
    return float(np.mean([getattr(agreement, name) for agreement in agreements]))


def show(name, setting, names, shown, limit=""):
    cells = [f"{100 * mean(shown[pile], 'bcubed_f1'):5.1f} / {100 * mean(shown[pile], 'pairwise_f1'):5.1f}" for pile in names]
    by_seed = [100 * np.mean([shown[pile][seed].score for pile in names]) for seed in range(len(shown[names[0]]))]
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
    parser.add_argument("--plot", help="a picture of expected and real precision over all thresholds")
    parser.add_argument("--points", type=int, default=5000, help="larger piles are thinned by leaving out classes")
    parser.add_argument("--many", help=f"a file with more than {MANY:,} classes, for one more pile")
    parser.add_argument("--expected", action="store_true", help="leave out the table of methods")
    options = parser.parse_args()
    chosen_by, shown_on = load(options.validation), load(options.test)
    if not options.expected:
        table(chosen_by, shown_on, options.seeds, options.points, load(options.many) if options.many else None)
    expected(chosen_by, shown_on, options.seeds, options.plot, Path(options.test).stem.removesuffix("_test"))


def table(chosen_by, shown_on, seeds, points, crowd):
    first = resampled_sets(shown_on[1], 0, max_points=points)
    sizes = ", ".join(f"{name} {len(rows):,}" for name, rows in first.items())
    print(f"{len(chosen_by[0]):,} points choose, {len(shown_on[0]):,} of other classes show ({sizes}); BCubed F1 / pairwise F1")
    print(f"{'':38} {'setting':>7} " + " ".join(f"{pile:>20}" for pile in first) + f" {'mean':>14}")
    names = list(first)
    for name, cluster in METHODS.items():
        chosen, shown = (scores(cluster, *classes, seeds, points) for classes in (chosen_by, shown_on))
        common = [setting for setting in chosen if setting in shown]
        best = max(common, key=lambda setting: np.mean([mean(chosen[setting][pile]) for pile in names]))
        limit = 100 * np.mean([max(mean(s[pile]) for s in shown.values()) for pile in names])
        show(name, f"{best:.3g}", names, shown[best], f"({limit:.1f})")
        if crowd is not None:
            many(*crowd, seeds, lambda x, k, best=best: cluster(x, [best])[best])  # noqa: B023
    found = calibrate(*chosen_by)
    for name, cluster in {
        "facetric, calibrate()": lambda x, k: found.clusterer().fit_predict(x),
        "facetric AverageLinkage, no labels": lambda x, k: AverageLinkage().fit_predict(x),
        "k-means, true k": lambda x, k: KMeans(k, random_state=0).fit_predict(x),
    }.items():
        show(name, "", names, without_setting(cluster, *shown_on, seeds, points))
        if crowd is not None:
            many(*crowd, seeds, cluster)


def many(vectors, classes, seeds, cluster):
    """2,000 classes in a long tail among classes of one point: BCubed F1 / pairwise F1."""
    found, numbers = [], []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        order = rng.permutation(int(classes.max()) + 1)
        sizes = np.append(np.round(np.geomspace(20, 2, MANY)), np.ones(len(order) - MANY)).astype(int)
        own = rows_by_class(classes, order, rng)
        rows = np.concatenate([part[:size] for part, size in zip(own, sizes, strict=True)])
        found.append(Agreement.of(classes[rows], cluster(vectors[rows], len(order)).astype(np.int64)))
        numbers.append(len(rows))
    by_seed = [100 * agreement.score for agreement in found]
    print(
        f"{'':38} {MANY:,} classes, {len(order) - MANY:,} alone, {np.mean(numbers):,.0f} points: "
        f"{100 * mean(found, 'bcubed_f1'):5.1f} / {100 * mean(found, 'pairwise_f1'):5.1f}, score {np.mean(by_seed):5.1f} ± "
        f"{np.std(by_seed):3.1f}",
        flush=True,
    )


def without_setting(cluster, vectors, classes, seeds, points):
    found = {}
    for seed in range(seeds):
        for pile, rows in resampled_sets(classes, seed, max_points=points).items():
            clusters = cluster(vectors[rows], len(np.unique(classes[rows])))
            found.setdefault(pile, []).append(Agreement.of(classes[rows], clusters.astype(np.int64)))
    return found


def expected(chosen_by, shown_on, seeds, plot, title):
    """Expected and real pairwise precision of piles with several numbers of classes, at several steps of the calibration."""
    found = calibrate(*chosen_by)
    vectors, classes = shown_on
    print(f"\ncalibrate chose {found.threshold:.3g}, spread {found.spread:.2f}; pairwise precision in %")
    print(f"  {'classes':>8} {'finer':>6} {'real':>6} {'expected':>9} {'interval':>10} {'held':>5}   means of {seeds} seeds")
    rows = []
    for n_classes in (n for n in N_CLASSES if n <= classes.max() + 1):
        for n_finer in N_FINER:
            calibration = found.finer(n_finer)
            some = [one_expected(calibration, vectors, classes, n_classes, seed) for seed in range(seeds)]
            rows += [(n_classes, *expected_and_real) for expected_and_real in some]
            real = np.mean([real for _, real in some])
            value, low, high = (np.mean([getattr(p, name) for p, _ in some]) for name in ("value", "low", "high"))
            held = sum(p.low - 0.005 <= r <= p.high + 0.005 for p, r in some)
            print(
                f"  {n_classes:8} {n_finer:6} {100 * real:6.1f} {100 * value:9.1f} {100 * low:5.0f}–{100 * high:.0f} "
                f"{held:6}/{len(some)}",
                flush=True,
            )
    held = np.mean([p.low - 0.005 <= r <= p.high + 0.005 for _, p, r in rows])
    print(f"  the interval holds for {100 * held:.0f}% of {len(rows)}; on the calibration's own piles it was ", end="")
    print(f"{100 * found.reached.pairwise_precision:.1f}")
    if plot:
        draw(rows, plot, title)


def one_expected(calibration, vectors, classes, n_classes, seed):
    """For a long tail from 20 to 2 points per class."""
    rng = np.random.default_rng(seed)
    sizes = np.round(np.geomspace(20, 2, n_classes)).astype(int)
    chosen = rng.permutation(classes.max() + 1)[:n_classes]
    rows = np.concatenate([rng.permutation(np.flatnonzero(classes == c))[:n] for c, n in zip(chosen, sizes, strict=True)])
    clusters = calibration.clusterer().fit_predict(vectors[rows])
    real = Agreement.of(classes[rows], clusters).pairwise_precision
    return calibration.expected(vectors[rows], clusters).precision, real


def draw(rows, path, title):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots(figsize=(5.2, 4.8))
    panel.plot([0, 1], [0, 1], color="0.7", linewidth=1, zorder=0)
    for n_classes, marker in zip(N_CLASSES, "osv^", strict=True):
        own = [(p, real) for n, p, real in rows if n == n_classes]
        if own:
            x, y = [real for _, real in own], [p.value for p, _ in own]
            bars = [[p.value - p.low for p, _ in own], [p.high - p.value for p, _ in own]]
            panel.errorbar(x, y, yerr=bars, fmt=marker, markersize=4, linewidth=0.6, label=f"{n_classes} classes")
    panel.set(xlabel="real pairwise precision (test classes)", ylabel="expected, with its interval", aspect="equal")
    panel.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), title=title)
    panel.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
