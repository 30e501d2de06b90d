"""The clustering engine against what people use, in one run on the same arrays.

    python benchmarks/clustering.py [--sizes 2500 10000 50000] [--unknown 12753] [--cub FEATURES.npz] [--million]

Three tables. k given: facetric, kmedoids' FasterPAM, scikit-learn's KMeans (k-means++, 1 and 10 starts) and faiss' k-means; the
sum of distances for medoids, of squared distances for means. k unknown: facetric with a given opening cost, HDBSCAN and average
linkage at their best of several settings by the true labels, so that the comparison is about time and the best that each can do.
--million: a million points in 64 dimensions, 50,000 classes, end to end, and how time grows with the number of points.

Data: long-tailed mixtures on the unit sphere (sizes ∝ 1/(rank + 10)^0.8), and with --cub the vectors and labels of a .npz file.
Times are on the clock and, in brackets, of all processor cores; compiled code is compiled before.
"""

import argparse
import resource
import time

import numpy as np

from facetric.clustering import FacilityLocation
from facetric.clustering.distances import dense_costs
from facetric.clustering.neighbors import neighbor_graph
from facetric.metrics import ami, nmi, pairwise_f1

DIMENSION = 64
MAX_FASTERPAM = 20_000  # its matrix of 50,000 points needs 10 GB


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


def distance_sum(vectors, centers, clusters):
    return float(np.sqrt(((vectors - centers[clusters]) ** 2).sum(axis=1)).sum())


def square_sum(vectors, clusters):
    _, codes = np.unique(clusters, return_inverse=True)
    means = np.zeros((codes.max() + 1, vectors.shape[1]))
    np.add.at(means, codes, vectors.astype(np.float64))
    means /= np.bincount(codes)[:, None]
    return float(((vectors - means[codes]) ** 2).sum())


def row(name, seconds, objective, labels, clusters, extra=""):
    print(
        f"  {name:42} {seconds[0]:8.2f} ({seconds[1]:7.2f}) s {objective:12.2f}   NMI {100 * nmi(labels, clusters):6.2f}  "
        f"AMI {100 * ami(labels, clusters):6.2f}  F1 {100 * pairwise_f1(labels, clusters):6.2f} {extra}",
        flush=True,
    )


def k_given(title, vectors, labels):
    n, k = len(vectors), len(np.unique(labels))
    print(f"\nk given: {title}, {n:,} points, {k:,} classes")
    found, ours = timed(lambda: FacilityLocation(n_clusters=k, centers="medoids").fit(vectors))
    row("facetric, medoids", ours, found.objective_, labels, found.labels_)
    if n <= MAX_FASTERPAM:
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

    def run():
        return kmedoids.fasterpam(dense_costs(vectors, cosine=False, squared=False), k, random_state=0, n_cpu=2)

    found, theirs = timed(run)
    clusters = np.asarray(found.labels)
    row("kmedoids.fasterpam, random start, 2 threads", theirs, found.loss, labels, clusters.astype(np.int64))
    print(
        f"    → {theirs[0] / ours[0]:.1f}x ({theirs[1] / ours[1]:.1f}x) faster at {objective / found.loss:.4f} of its objective"
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
        f"    → {ten[0] / ours[0]:.1f}x ({ten[1] / ours[1]:.1f}x) faster than ten starts of scikit-learn at "
        f"{objective / best.inertia_:.4f} of their best objective"
    )


def k_unknown(title, vectors, labels, n_neighbors=64):
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import pdist
    from sklearn.cluster import HDBSCAN

    n = len(vectors)
    print(f"\nk unknown: {title}, {n:,} points, {len(np.unique(labels)):,} classes")
    scale = float(np.median(neighbor_graph(vectors[:5000], 5, cosine=False, squared=False).data))
    graph, known = timed(lambda: neighbor_graph(vectors, n_neighbors, cosine=False, squared=False))
    results = []
    for factor in (1.5, 2, 3, 4, 6, 8):
        clusterer = FacilityLocation(opening_cost=factor * scale, metric="precomputed")
        found, seconds = timed(lambda clusterer=clusterer: clusterer.fit(graph))
        results.append((pairwise_f1(labels, found.labels_), found, seconds, factor))
    _, found, ours, factor = max(results, key=lambda result: result[0])
    name = f"facetric, neighbors known, λ = {factor:g}·d₅"
    row(name, ours, found.objective_, labels, found.labels_, f"k = {len(found.medoid_indices_):,}")
    print(f"    the {n_neighbors} neighbors themselves took {known[0]:.2f} ({known[1]:.2f}) s")
    found, whole = timed(lambda: FacilityLocation(opening_cost=factor * scale).fit(vectors))
    row("facetric, from vectors", whole, found.objective_, labels, found.labels_, f"k = {len(found.medoid_indices_):,}")
    results = []
    for size in (2, 3, 5):
        found, seconds = timed(lambda size=size: HDBSCAN(min_cluster_size=size, min_samples=1, copy=True).fit(vectors))
        clusters = np.where(found.labels_ < 0, found.labels_.max() + 1 + np.arange(n), found.labels_)  # noise is alone
        results.append((pairwise_f1(labels, clusters), clusters, seconds))
    _, clusters, theirs = max(results, key=lambda result: result[0])
    row("HDBSCAN, best min_cluster_size of 2, 3, 5", theirs, np.nan, labels, clusters, f"k = {len(np.unique(clusters)):,}")
    print(f"    → {theirs[0] / ours[0]:.0f}x ({theirs[1] / ours[1]:.0f}x) faster")
    tree, theirs = timed(lambda: linkage(pdist(vectors), "average"))
    thresholds = np.quantile(tree[:, 2], np.linspace(0.3, 0.999, 40))
    cuts = [fcluster(tree, threshold, "distance").astype(np.int64) for threshold in thresholds]
    clusters = max(cuts, key=lambda cut: pairwise_f1(labels, cut))
    row("average linkage, best of 40 thresholds", theirs, np.nan, labels, clusters, f"k = {len(np.unique(clusters)):,}")
    print(f"    → {theirs[0] / ours[0]:.0f}x ({theirs[1] / ours[1]:.0f}x) faster")


def million(n=1_000_000, n_classes=50_000, opening_cost=1.5):
    print(f"\nend to end, {DIMENSION} dimensions, 20 points per class on average, λ = {opening_cost:g}")
    FacilityLocation(opening_cost=opening_cost).fit(long_tail(11_000, 500)[0])  # compiles
    seconds = {}
    for size in (n // 16, n // 4, n):
        vectors, labels = long_tail(size, size * n_classes // n)
        loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        found, seconds[size] = timed(lambda vectors=vectors: FacilityLocation(opening_cost=opening_cost).fit(vectors))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        extra = f"k = {len(found.medoid_indices_):,}, peak {peak:.2f} GiB ({loaded:.2f} before)"
        row(f"{size:,} points", seconds[size], found.objective_, labels, found.labels_, extra)
    exponent = np.log(seconds[n][1] / seconds[n // 4][1]) / np.log(4)
    print(f"    → processor time grows with n^{exponent:.2f} in the last step")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[2500, 10_000, 50_000])
    parser.add_argument("--unknown", type=int, default=12_753, help="points of the table with k unknown; 0: none")
    parser.add_argument("--cub", help="a .npz file with vectors and labels, such as benchmarks/raw_features.py writes")
    parser.add_argument("--million", action="store_true")
    options = parser.parse_args()
    if options.million:
        million()
        return
    for n in (600, 10_100):  # compiles both ways
        warm = long_tail(n, 40)[0]
        for settings in ({"n_clusters": 40}, {"n_clusters": 40, "centers": "medoids"}, {"opening_cost": 1.0}):
            FacilityLocation(**settings).fit(warm)
    FacilityLocation(opening_cost=1.0, metric="precomputed").fit(neighbor_graph(warm, 5, cosine=False, squared=False))
    for n in options.sizes:
        k_given("synthetic", *long_tail(n, n // 20 if n <= 10_000 else 1000))
    if options.cub:
        stored = np.load(options.cub)
        k_given("CUB", stored["vectors"], stored["labels"].astype(np.int64))
        k_unknown("CUB", stored["vectors"], stored["labels"].astype(np.int64))
    if options.unknown:
        k_unknown("synthetic", *long_tail(options.unknown, options.unknown // 12))


if __name__ == "__main__":
    main()
