"""The clustering engine against what people use, in one run on the same arrays.

    python benchmarks/clustering.py [--sizes 2500 10000 50000] [--unknown 12753] [--parts 8000] [--features FILE.npz ...]
    python benchmarks/clustering.py --many 1000000

k given: facetric, kmedoids' FasterPAM, scikit-learn's KMeans (k-means++, 1 and 10 starts) and faiss' k-means; the sum of
distances for medoids, of squared distances for means. k unknown: facetric, HDBSCAN and average linkage at their best of several
settings by the true labels (AMI + pairwise F1), so that the comparison is about time and the best that each can do; and
`AverageLinkage()`, which is told nothing. In parts:
what k medoids lose when the points lie on several machines. --many: points in 64 dimensions, end to end, and how time grows with
their number.

Data: long-tailed mixtures on the unit sphere (sizes ∝ 1/(rank + 10)^0.8), and the vectors of --features with their labels or, in
files of `facetric embed`, folders. Times are on
the clock and, in brackets, of all processor cores; compiled code is compiled before.
"""

import argparse
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from facetric.clustering import AverageLinkage, FacilityLocation, PairLinkage
from facetric.clustering.kmeans import two_nearest
from facetric.clustering.knn import EUCLIDEAN, SQUARED, dense_costs, neighbor_graph
from facetric.clustering.links import Links
from facetric.clustering.medoids import solve
from facetric.clustering.state import Dense, unserved_cost
from facetric.clustering.tree import average_linkage
from facetric.metrics import ami, nmi, pairwise_f1

DIMENSION = 64


def long_tail(n, n_classes, *, noise=0.8, seed=0):
    rng = np.random.default_rng(seed)
    shares = (np.arange(n_classes) + 10.0) ** -0.8
    labels = np.concatenate([np.arange(n_classes), rng.choice(n_classes, n - n_classes, p=shares / shares.sum())])
    vectors = rng.standard_normal((n_classes, DIMENSION), dtype=np.float32)[labels]
    vectors += noise * rng.standard_normal((n, DIMENSION), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors, labels


def timed(function):
    wall, processor = time.perf_counter(), time.process_time()
    result = function()
    return result, (time.perf_counter() - wall, time.process_time() - processor)


def available_gigabytes():
    """Linux says what can be had without swapping; elsewhere nothing is left out."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return np.inf
    return next(int(line.split()[1]) * 1024 / 1e9 for line in lines if line.startswith("MemAvailable"))


def fastest(times):
    """On the clock and of the processor, each on its own: what other programs on the machine disturb least."""
    return tuple(map(min, zip(*times, strict=True)))


def square_sum(vectors, clusters):
    _, codes = np.unique(clusters, return_inverse=True)
    means = np.zeros((codes.max() + 1, vectors.shape[1]))
    np.add.at(means, codes, vectors.astype(np.float64))
    means /= np.bincount(codes)[:, None]
    return float(((vectors - means[codes]) ** 2).sum())


def row(name, seconds, objective, labels, clusters, extra=""):
    print(
        f"  {name:52} {seconds[0]:8.2f} ({seconds[1]:7.2f}) s {objective:12.2f}   NMI {100 * nmi(labels, clusters):6.2f}  "
        f"AMI {100 * ami(labels, clusters):6.2f}  F1 {100 * pairwise_f1(labels, clusters):6.2f} {extra}",
        flush=True,
    )


def k_given(title, vectors, labels):
    n, k = len(vectors), len(np.unique(labels))
    print(f"\nk given: {title}, {n:,} points, {k:,} classes")
    found, ours = timed(lambda: FacilityLocation(n_clusters=k, centers="medoids").fit(vectors))
    row("facetric, medoids", ours, found.objective_, labels, found.labels_)
    fasterpam(vectors, labels, k, ours, found.objective_)
    found, ours = timed(lambda: FacilityLocation(n_clusters=k).fit(vectors))
    row("facetric, means", ours, square_sum(vectors, found.labels_), labels, found.labels_)
    k_means(vectors, labels, k, ours, square_sum(vectors, found.labels_))


def fasterpam(vectors, labels, k, ours, objective):
    try:
        import kmedoids
    except ImportError:
        print("  kmedoids is not installed")
        return
    needed, there = 4 * len(vectors) ** 2 / 1e9, available_gigabytes()
    if needed > there / 2:
        print(f"  kmedoids.fasterpam is left out: its matrix takes {needed:.1f} GB, and {there:.1f} GB are available")
        return

    def run():
        return kmedoids.fasterpam(dense_costs(vectors, EUCLIDEAN), k, random_state=0, n_cpu=2)

    found, theirs = timed(run)
    clusters = np.asarray(found.labels)
    row(f"kmedoids.fasterpam, random start, {found.n_iter} sweeps", theirs, found.loss, labels, clusters.astype(np.int64))
    print(
        f"    → facetric is {theirs[0] / ours[0]:.1f}x ({theirs[1] / ours[1]:.1f}x) faster, its sum is "
        f"{objective / found.loss:.6f} times theirs"
    )


def k_means(vectors, labels, k, ours, objective):
    from sklearn.cluster import KMeans

    starts = [timed(lambda seed=seed: KMeans(k, n_init=1, random_state=seed).fit(vectors)) for seed in range(10)]
    one, seconds = starts[0]
    row("scikit-learn KMeans, 1 start", seconds, one.inertia_, labels, one.labels_.astype(np.int64))
    best = min((found for found, _ in starts), key=lambda found: found.inertia_)
    ten = tuple(sum(times[i] for _, times in starts) for i in range(2))
    row("scikit-learn KMeans, best of 10", ten, best.inertia_, labels, best.labels_.astype(np.int64))
    try:
        import faiss
    except ImportError:
        print("  faiss is not installed")
    else:
        kmeans = faiss.Kmeans(vectors.shape[1], k, niter=25, seed=1, max_points_per_centroid=10**9, min_points_per_centroid=1)
        _, seconds = timed(lambda: kmeans.train(vectors))
        clusters = kmeans.index.search(vectors, 1)[1][:, 0]
        row("faiss Kmeans, 25 iterations", seconds, square_sum(vectors, clusters), labels, clusters)
    print(
        f"    → facetric is {ten[0] / ours[0]:.1f}x ({ten[1] / ours[1]:.1f}x) faster than ten starts of scikit-learn, its sum is "
        f"{objective / best.inertia_:.4f} times their best"
    )


def quality(labels, clusters):
    return ami(labels, clusters) + pairwise_f1(labels, clusters)


def k_unknown(title, vectors, labels, n_neighbors=32):
    """Every method at the best of several settings by the true labels; the time is that of one setting, the fastest of a few."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import pdist
    from sklearn.cluster import HDBSCAN

    n = len(vectors)
    print(f"\nk unknown: {title}, {n:,} points, {len(np.unique(labels)):,} classes")
    graph, known = timed(lambda: neighbor_graph(vectors, n_neighbors, SQUARED))
    nobody = Links.parse(None, None, n)
    thresholds = np.quantile(np.sqrt(graph.data), np.linspace(0.02, 0.98, 40))

    def merge(threshold):
        tree = average_linkage(vectors, threshold**2, n_neighbors=n_neighbors, links=nobody)
        return tree.cut(threshold**2)

    merge(thresholds[0])  # compiles
    results = [(*timed(lambda threshold=threshold: merge(threshold)), threshold) for threshold in thresholds]
    clusters, _, threshold = max(results, key=lambda result: quality(labels, result[0]))
    ours = fastest(timed(lambda: merge(threshold))[1] for _ in range(5))
    name = f"facetric average linkage at {threshold:.3f}"
    row(name, ours, np.nan, labels, clusters, f"k = {clusters.max() + 1:,}")
    print(f"    the {n_neighbors} neighbors themselves took {known[0]:.2f} ({known[1]:.2f}) s")
    found, whole = timed(lambda: AverageLinkage(threshold).fit(vectors))
    row("the same from vectors, with ambiguity", whole, np.nan, labels, found.labels_, f"k = {found.n_clusters_:,}")
    found, whole = timed(lambda: AverageLinkage().fit(vectors))
    name = f"without a threshold: {found.threshold_:.3f}"
    row(name, whole, np.nan, labels, found.labels_, f"k = {found.n_clusters_:,}")
    costs = np.quantile(graph.data, 0.5) * np.array([0.7, 1, 1.5, 2, 3, 4, 6])
    results = [timed(lambda c=c: FacilityLocation(opening_cost=c, squared=True).fit(vectors)) for c in costs]
    found, seconds = max(results, key=lambda result: quality(labels, result[0].labels_))
    name = f"facetric facility location, λ = {found.opening_cost:.3f}"
    row(name, seconds, found.objective_, labels, found.labels_, f"k = {len(found.medoid_indices_):,}")
    results = []
    for size in (2, 3, 5):
        found, seconds = timed(lambda size=size: HDBSCAN(min_cluster_size=size, min_samples=1, copy=True).fit(vectors))
        clusters = np.where(found.labels_ < 0, found.labels_.max() + 1 + np.arange(n), found.labels_)  # noise is alone
        results.append((quality(labels, clusters), clusters, seconds))
    clusters, theirs = max(results, key=lambda result: result[0])[1], fastest(seconds for _, _, seconds in results)
    row("HDBSCAN, best min_cluster_size of 2, 3, 5", theirs, np.nan, labels, clusters, f"k = {len(np.unique(clusters)):,}")
    print(f"    → {theirs[0] / ours[0]:.0f}x ({theirs[1] / ours[1]:.0f}x) faster")
    merges, theirs = timed(lambda: linkage(pdist(vectors), "average"))
    cuts = [fcluster(merges, t, "distance").astype(np.int64) for t in np.quantile(merges[:, 2], np.linspace(0.3, 0.999, 40))]
    clusters = max(cuts, key=lambda cut: quality(labels, cut))
    row("scipy average linkage, best of 40 thresholds", theirs, np.nan, labels, clusters, f"k = {len(np.unique(clusters)):,}")
    print(f"    → {theirs[0] / ours[0]:.0f}x ({theirs[1] / ours[1]:.0f}x) faster")


def many(n, n_classes, threshold=1.1):
    """Learned links beside one threshold of distance (what 0.2 grouped photos by), each in a process of its own."""
    print(f"\nend to end, {DIMENSION} dimensions, {n // n_classes} points per class on average, threshold {threshold:g}")
    seconds = {}
    for size in (n // 100, n // 10, n):
        for name in ("threshold", "learned links"):
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                found = process.submit(one_fit, name, size, max(size * n_classes // n, 2), threshold).result()
            (k, labels, clusters), seconds[name, size], extra = found
            row(f"{size:,} points, {name}", seconds[name, size], np.nan, labels, clusters, f"k = {k:,}, {extra}")
        ratio = [seconds["learned links", size][part] / seconds["threshold", size][part] for part in (0, 1)]
        print(f"    → learned links take {ratio[0]:.2f} ({ratio[1]:.2f}) times as long", flush=True)
    for name in ("threshold", "learned links"):
        exponent = np.log(seconds[name, n][1] / seconds[name, n // 10][1]) / np.log(10)
        print(f"    → {name}: processor time grows with n^{exponent:.2f} in the last step")


def one_fit(name, size, n_classes, threshold):
    clusterer = AverageLinkage(threshold) if name == "threshold" else PairLinkage()
    clusterer.fit(long_tail(min(size, 11_000), min(n_classes, 500))[0])  # compiles
    vectors, labels = long_tail(size, n_classes)
    loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    found, seconds = timed(lambda: clusterer.fit(vectors))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return (found.n_clusters_, labels, found.labels_), seconds, f"peak {peak:.2f} GiB ({loaded:.2f} before)"


def parts(title, vectors, labels, numbers=(2, 8, 32)):
    """k medoids in two rounds: 3·k of every part, then k of these, each of which counts as many points as it stands for."""
    k = len(np.unique(labels))
    print(f"\nin parts: {title}, {len(vectors):,} points, k = {k:,}")
    whole, seconds = timed(lambda: FacilityLocation(n_clusters=k, centers="medoids").fit(vectors))
    row("one part", seconds, whole.objective_, labels, whole.labels_)
    for n_parts in numbers:
        (objective, clusters), seconds = timed(lambda n_parts=n_parts: in_parts(vectors, k, n_parts))
        row(f"{n_parts} parts", seconds, objective, labels, clusters, f"{100 * (objective / whole.objective_ - 1):+.2f}%")


def in_parts(vectors, k, n_parts):
    members = np.array_split(np.random.default_rng(0).permutation(len(vectors)), n_parts)
    locals_, weights = [], []
    for rows in members:
        found = FacilityLocation(n_clusters=min(3 * k, len(rows)), centers="medoids").fit(vectors[rows])
        locals_.append(rows[found.medoid_indices_])
        weights.append(np.bincount(found.labels_))
    chosen, weights = np.concatenate(locals_), np.concatenate(weights)
    costs = dense_costs(vectors[chosen], EUCLIDEAN) * weights.astype(np.float32)
    problem = Dense(costs, np.full(len(chosen), unserved_cost(costs)))
    nearest = two_nearest(vectors, vectors[chosen[solve(problem, n_clusters=k).medoids]])
    return float(nearest.near_costs.sum()), nearest.near


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[2500, 10_000, 50_000], help="points of the tables with k given")
    parser.add_argument("--unknown", type=int, default=12_753, help="points of the table with k unknown; 0: none")
    parser.add_argument("--parts", type=int, default=8000, help="points of the table in parts; 0: none")
    parser.add_argument("--features", nargs="*", default=[], help=".npz files with vectors and labels: tables for these, too")
    parser.add_argument(
        "--many", type=int, default=0, help="points end to end, 20 per class, a tenth and a hundredth of them; nothing else"
    )
    options = parser.parse_args()
    if options.many:
        many(options.many, options.many // 20)
        return
    for n in (600, 10_100):  # compiles both ways
        warm = long_tail(n, 40)[0]
        for settings in ({"n_clusters": 40}, {"n_clusters": 40, "centers": "medoids"}, {"opening_cost": 1.0}):
            FacilityLocation(**settings).fit(warm)
        AverageLinkage(1.0).fit(warm)
    for n in options.sizes:
        k_given("synthetic", *long_tail(n, n // 20 if n <= 10_000 else 1000))
    if options.parts:
        parts("synthetic", *long_tail(options.parts, 100))
    for path in options.features:
        stored = np.load(path)
        folders = [name.split("/")[0] for name in stored["names"]] if "names" in stored else None  # of `facetric embed`
        vectors, labels = stored["vectors"], np.unique(folders or stored["labels"], return_inverse=True)[1]
        if options.sizes:
            k_given(path, vectors, labels)
        k_unknown(path, vectors, labels)
    if options.unknown:
        k_unknown("synthetic", *long_tail(options.unknown, options.unknown // 12))


if __name__ == "__main__":
    main()
