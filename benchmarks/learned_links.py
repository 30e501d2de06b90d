"""Groups by learned links: how probable it is that two photos are of one class, learned on labeled piles of other kinds.

    FACETRIC_DATA=path/to/datasets python benchmarks/learned_links.py --leave-out pets --vectors cache [--glyphs runs/glyphs]
    FACETRIC_DATA=path/to/datasets python benchmarks/learned_links.py --cub --vectors cache [--glyphs runs/glyphs]

1. A linear model of 17 features of a pair within its pile gives the log-odds that two photos are of one class.
2. Average linkage on the log-odds. A linear model of 23 features of a merge gives the probability that a pair across the two
   parts is of one class; it takes the place of what the pairs say one by one.
3. The tree is cut where the expected pairwise F1 is largest. No threshold, no number of groups.

Both models are learned on piles that are drawn from labeled classes of several kinds of photos, seen by several networks. No
feature is a similarity as it is, so they carry over to other kinds, other networks and trained ones. With few classes of its own
a run learns by maximum a posteriori, with the coefficients of the other kinds as the mean of the prior.

--leave-out: learned on three of the kinds birds, pets, groceries and characters (glyphs), tested on piles of the fourth.
--cub: learned on the classes 1 to 100 of CUB (own), or on the three other kinds, tested on piles of the classes 101 to 200;
with the features as they are, and with a closed-form head fitted to the classes 1 to 50 and links learned on 51 to 100.
Both print BCubed F1 / pairwise F1 (groups found), beside k-means with the true k, the threshold of `facetric cluster` and the
best cut of the learned tree. --check compares both forms of the features, --write stores what all four kinds teach, --retrieval
says what a network and a way to make photos square are worth: KIND:VARIANT, as pets:lite0_crop or cub:lite1at224_stretch.

Vectors are kept in the folder of --vectors. The characters are embedded by a run of configs/glyphs.toml (--glyphs), and only
those of its test half are used; without it there are three kinds. FACETRIC_DATA holds CUB_200_2011, pets (the Oxford-IIIT pets)
and groceries (the Grocery Store dataset), one folder for a class.
"""

import argparse
import json
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps
from scipy.cluster.hierarchy import linkage
from scipy.sparse import csr_matrix
from scipy.special import expit
from sklearn.cluster import KMeans

import facetric
from facetric.embedder import Embedder, build_network
from facetric.embedder.heads import closed_form_head
from facetric.images.readers import load_dataset
from facetric.metrics import map_at_r, nearest, precision_recall, recall_at_k, unit_rows

N_NEIGHBORS = 40
CLIP = 8.0  # log-odds of a pair before linkage
SHARED, AVERAGED, NEAREST = (5, 10, 20, 40), (2, 5, 10), (1, 3, 10, 30)  # lengths of neighbor lists
PAIR_FEATURES = (
    "cosine", "cosine_less_means", "rank_lower", "rank_higher", *(f"shared_{m}" for m in SHARED),
    *(f"averaged_{m}" for m in AVERAGED), "density_lower", "density_higher", *(f"nearest_{m}" for m in NEAREST),
)  # fmt: skip
NODE_FEATURES = (
    "smaller", "larger", "fraction_of_pile", "inside_lower", "inside_higher", "n_single", "to_parent", "to_parts", "spread",
    "nearest_pair", "farthest_pair", "size_to_expected", "n_photos", "expected_size", "height", "contrast_lower",
    "contrast_higher", "contrast_of_pile", "n_clusters", "fraction_of_clusters", "rank_of_height", "contrast_of_parent",
    "is_root",
)  # fmt: skip

# The first variant of a kind is the one that is tested; all of them teach.
VARIANTS = {
    "cub": ("lite0_stretch", "lite1_stretch"),
    "pets": ("lite0_crop", "lite0_stretch", "lite1_crop", "lite2_crop", "lite1_pad"),
    "groceries": ("lite0_crop", "lite0_stretch", "lite1_crop", "lite2_crop", "lite1_pad"),
    "glyphs": ("glyphnet",),
}
TAIL = 0  # in place of the photos per class: 30 to 2 of them
CUB_SHAPES = ((4, 15), (8, 15), (8, 5), (8, TAIL), (20, 15), (20, TAIL), (50, 5), (50, TAIL))  # classes, photos per class
SHAPES = {
    "cub": CUB_SHAPES,
    "pets": ((4, 15), (8, 15), (8, 5), (8, TAIL), (12, 10), (12, TAIL)),
    "groceries": ((4, 15), (8, 15), (8, 5), (20, 15), (20, TAIL), (30, 5)),
    "glyphs": ((8, 10), (20, 10), (20, TAIL), (50, 5), (50, TAIL), (100, 5)),
}


# Features of a pair within its pile


def dense_features(vectors):
    """(n_pairs, 17) of all pairs of a pile, in the order of np.triu_indices."""
    x = unit_rows(np.asarray(vectors, dtype=np.float32))
    n = len(x)
    first, second = np.triu_indices(n, 1)
    similarity = x @ x.T
    others = similarity.copy()
    np.fill_diagonal(others, -np.inf)
    neighbors = np.argsort(-others, axis=1, kind="stable")[:, : min(N_NEIGHBORS, n - 1)]  # ties by row
    k = neighbors.shape[1]
    ranks = np.full((n, n), k + 1, dtype=np.int16)
    np.put_along_axis(ranks, neighbors, np.arange(1, k + 1, dtype=np.int16)[None].repeat(n, axis=0), axis=1)

    def within(m):  # (n, n), 1 for a photo itself and its first m neighbors
        return (ranks <= min(m, k)).astype(np.float32) + np.eye(n, dtype=np.float32)

    def pairs(y):
        return (y @ y.T)[first, second]

    cosine = similarity[first, second]
    averaged = [pairs(unit_rows(within(m) @ x)) for m in AVERAGED]
    return assembled(
        first, second, cosine, (cosine.mean(), cosine.std()),
        photo_means=(similarity.sum(axis=1) - similarity.diagonal()) / (n - 1),
        nearest_similarity=np.take_along_axis(similarity, neighbors, axis=1),
        ranks=(ranks[first, second], ranks[second, first]),
        shared=[pairs(within(m)) / (min(m, k) + 1) for m in SHARED],
        averaged=[(a - a.mean()) / (a.std() + 1e-6) for a in averaged],
    )  # fmt: skip


def list_features(vectors, n_reference=2000):
    """(features, first, second) of the pairs of which one is among the neighbors of the other: what a large pile can afford.

    Mean and spread of the similarities are those of `n_reference` photos; no more than that, everything is as in the dense form.
    """
    x = unit_rows(np.asarray(vectors, dtype=np.float32))
    n = len(x)
    neighbors = nearest(x, N_NEIGHBORS).rows
    k = neighbors.shape[1]
    rows = np.repeat(np.arange(n), k)
    codes = np.unique(np.minimum(rows, neighbors.ravel()) * n + np.maximum(rows, neighbors.ravel()))
    first, second = codes // n, codes % n
    reference = np.linspace(0, n - 1, min(n, n_reference)).astype(int)
    upper = np.triu_indices(len(reference), 1)
    table = csr_matrix((np.tile(np.arange(1, k + 1), n), (rows, neighbors.ravel())), shape=(n, n))  # of ranks

    def rank(of, at):
        found = np.asarray(table[of, at]).ravel()
        return np.where(found == 0, k + 1, found)

    def within(m):
        m = min(m, k)
        columns = np.hstack([np.arange(n)[:, None], neighbors[:, :m]]).ravel()
        ones = np.ones(len(columns), dtype=np.float32)
        return csr_matrix((ones, (np.repeat(np.arange(n), m + 1), columns)), shape=(n, n))

    def dot(y):
        return np.einsum("nd,nd->n", y[first], y[second])

    def scale(y):
        of_pile = (y[reference] @ y[reference].T)[upper]
        return of_pile.mean(), of_pile.std()

    shared, averaged = [], []
    for m in SHARED:
        members = within(m)
        shared.append(np.asarray(members[first].multiply(members[second]).sum(axis=1)).ravel() / (min(m, k) + 1))
    for m in AVERAGED:
        y = unit_rows(np.asarray(within(m) @ x))
        mean, spread = scale(y)
        averaged.append((dot(y) - mean) / (spread + 1e-6))
    nearest_similarity = np.einsum("nkd,nd->nk", x[neighbors], x)
    photo_means = (x @ x.sum(axis=0, dtype=np.float64).astype(np.float32) - 1) / (n - 1)
    ranks = rank(first, second), rank(second, first)
    return assembled(first, second, dot(x), scale(x), photo_means, nearest_similarity, ranks, shared, averaged), first, second


def assembled(first, second, cosine, scale, photo_means, nearest_similarity, ranks, shared, averaged):
    mean, spread = scale[0], scale[1] + 1e-6
    k = nearest_similarity.shape[1]
    density = (nearest_similarity[:, :5].mean(axis=1) - photo_means) / spread
    of_pile = [((nearest_similarity[:, min(m, k) - 1] - mean) / spread).mean() for m in NEAREST]
    columns = [
        (cosine - mean) / spread, (cosine - (photo_means[first] + photo_means[second]) / 2) / spread,
        np.log(np.minimum(*ranks)), np.log(np.maximum(*ranks)), *shared, *averaged,
        np.minimum(density[first], density[second]), np.maximum(density[first], density[second]),
        *(np.full(len(first), value) for value in of_pile),
    ]  # fmt: skip
    return np.column_stack(columns).astype(np.float32)


# Features of a merge


def node_features(log_odds, n):
    """(tree, features (n − 1, 23), pairs across the two parts of every merge) of average linkage on the log-odds of all pairs."""
    log_odds = np.clip(np.asarray(log_odds, dtype=np.float64), -CLIP, CLIP)
    tree = linkage(CLIP - log_odds, "average")
    left, right = tree[:, 0].astype(int), tree[:, 1].astype(int)
    nodes = n + np.arange(n - 1)
    probability = square(expit(log_odds), n)
    sums, largest = square(log_odds, n), square(log_odds, n)  # over the pairs across two clusters
    squares, smallest = sums**2, sums.copy()
    size, inside, parent = np.ones(2 * n - 1), np.zeros(2 * n - 1), np.full(2 * n - 1, -1)
    expected = np.concatenate([probability.sum(axis=1), np.zeros(n - 1)])  # photos of the same class, over the members
    row = np.arange(2 * n - 1)  # where the matrices hold a cluster
    across = np.empty((n - 1, 4))
    for m, (u, v) in enumerate(zip(left, right, strict=True)):
        a, b, w = row[u], row[v], n + m
        across[m] = sums[a, b], squares[a, b], largest[a, b], smallest[a, b]
        parent[u] = parent[v] = w
        row[w] = a
        size[w], expected[w] = size[u] + size[v], expected[u] + expected[v]
        inside[w] = inside[u] + inside[v] + sums[a, b]
        for matrix, join in ((sums, np.add), (squares, np.add), (largest, np.maximum), (smallest, np.minimum)):
            matrix[a] = join(matrix[a], matrix[b])
            matrix[:, a] = matrix[a]
    small, large = np.minimum(size[left], size[right]), np.maximum(size[left], size[right])
    n_across, both = small * large, small + large
    height = across[:, 0] / n_across
    heights = np.concatenate([np.full(n, CLIP), height])
    above = np.where(parent[nodes] >= 0, heights[parent[nodes]], -CLIP)
    inner = inside / np.maximum(size * (size - 1) / 2, 1)
    of_left, of_right = (np.where(size[part] > 1, inner[part], height) for part in (left, right))
    low, high = np.minimum(of_left, of_right), np.maximum(of_left, of_right)
    background = log_odds.mean()
    top = np.sort(log_odds)[-max(n // 2, 5) :].mean()  # the most probable pairs of the pile
    singles = large == 1
    n_left = n - 1 - np.arange(n - 1)  # clusters after this merge

    def contrast(value, inner):  # from 0 at the background to 1 at the inside
        return np.clip((value - background) / np.maximum(inner - background, 0.25), -0.5, 1.5)

    columns = [
        np.log(small), np.log(large), np.log(both / n), low - height, high - height,
        1.0 * (size[left] == 1) + (size[right] == 1), height - above, np.minimum(heights[left], heights[right]) - height,
        np.sqrt(np.maximum(across[:, 1] / n_across - height**2, 0)), across[:, 2] - height, across[:, 3] - height,
        np.log(both / (1 + (expected[left] + expected[right]) / both)), np.full(n - 1, np.log(n)),
        np.full(n - 1, np.log1p(probability.sum(axis=1)).mean()), (height - background) / (log_odds.std() + 1e-6),
        contrast(height, np.where(singles, top, low)), contrast(height, np.where(singles, top, high)),
        (height - background) / max(top - background, 0.25), np.log(n_left), np.log(n_left / n),
        np.log((np.searchsorted(np.sort(-log_odds), -height) + 1) * 2 / n), contrast(above, low), n_left == 1,
    ]  # fmt: skip
    return tree, np.column_stack(columns), n_across


def square(values, n):
    matrix = np.zeros((n, n))
    first, second = np.triu_indices(n, 1)
    matrix[first, second] = matrix[second, first] = values
    return matrix


def node_targets(tree, classes):
    """Per merge: the fraction of the pairs across its parts that are of one class."""
    counts = list(np.eye(classes.max() + 1)[classes])
    targets = np.empty(len(tree))
    for m, (u, v) in enumerate(tree[:, :2].astype(int)):
        targets[m] = counts[u] @ counts[v] / (counts[u].sum() * counts[v].sum())
        counts.append(counts[u] + counts[v])
    return targets


# Models


@dataclass(frozen=True)
class Linear:
    """log-odds = weights · clip((features − mean) / spread, ±4) + constant"""

    mean: np.ndarray
    spread: np.ndarray
    weights: np.ndarray  # the constant is the last

    def standardized(self, features):
        return np.clip((features - self.mean) / self.spread, -4, 4)

    def log_odds(self, features):
        return self.standardized(features) @ self.weights[:-1] + self.weights[-1]

    def fitted(self, features, targets, importance, strength):
        """argmin of Σ importance · log-loss + strength / 2 · ‖weights − own weights‖², by Newton; the constant is freer."""
        z = np.column_stack([self.standardized(features), np.ones(len(features))]).astype(np.float64)
        penalty = np.append(np.full(z.shape[1] - 1, strength), strength / 10)
        weights = self.weights
        for _ in range(25):
            p = expit(z @ weights)
            gradient = z.T @ (importance * (p - targets)) + penalty * (weights - self.weights)
            hessian = (z * (importance * p * (1 - p) + 1e-9)[:, None]).T @ z + np.diag(penalty)
            step = np.linalg.solve(hessian, gradient)
            weights = weights - step
            if np.abs(step).max() < 1e-6:
                break
        return replace(self, weights=weights)

    @classmethod
    def blank(cls, features):
        return cls(features.mean(axis=0), features.std(axis=0) + 1e-6, np.zeros(features.shape[1] + 1))

    def to_dict(self, names):
        columns = zip(names, self.mean, self.spread, self.weights[:-1], strict=True)
        terms = {f: {"mean": float(m), "spread": float(s), "weight": float(w)} for f, m, s, w in columns}
        return {"features": terms, "constant": float(self.weights[-1])}


@dataclass(frozen=True)
class Links:
    """The model of pairs and the model of merges."""

    pairs: Linear
    nodes: Linear

    def group(self, vectors, lists_only=False):
        """The tree, the number of merges, and per node of the tree the expected number of pairs of one class."""
        features, n = dense_features(vectors), len(vectors)
        log_odds = np.clip(self.pairs.log_odds(features), -CLIP, CLIP)
        if lists_only:  # as a large pile would be, where the other pairs are not looked at
            far = features[:, PAIR_FEATURES.index("rank_lower")] > np.log(min(N_NEIGHBORS, n - 1) + 0.5)
            log_odds[far] = log_odds[far].mean() if far.any() else 0
        tree, nodes, n_across = node_features(log_odds, n)
        of_one_class = expit(self.nodes.log_odds(nodes)) * n_across
        joined, merged = np.append(0, of_one_class.cumsum()), np.append(0, n_across.cumsum())
        f1 = 2 * joined / np.maximum(merged + joined[-1], 1e-9)
        within = np.concatenate([np.zeros(n), of_one_class])
        for m, (u, v) in enumerate(tree[:, :2].astype(int)):
            within[n + m] += within[u] + within[v]
        return tree, int(f1.argmax()), within, float(f1.max())

    def to_dict(self):
        pairs, nodes = self.pairs.to_dict(PAIR_FEATURES), self.nodes.to_dict(NODE_FEATURES)
        return {"n_neighbors": N_NEIGHBORS, "clip": CLIP, "pairs": pairs, "nodes": nodes}


def partitions(tree):
    """The clusters after 0, 1, … merges: per photo the node of the tree that it is in."""
    nodes = np.arange(len(tree) + 1)
    yield nodes.copy()
    for m, (u, v) in enumerate(tree[:, :2].astype(int)):
        nodes[(nodes == u) | (nodes == v)] = len(tree) + 1 + m
        yield nodes.copy()


# Piles


def drawn_sizes(n_classes, rng):
    """Photos per class of a pile to learn from: even, a long tail or log-normal; often with single photos."""
    shape = rng.random()
    if shape < 0.45:
        sizes = np.full(n_classes, rng.choice([2, 3, 5, 8, 12, 15, 20, 30]))
    elif shape < 0.75:
        sizes = np.round(np.geomspace(rng.choice([10, 20, 30]), rng.choice([1, 2, 3]), n_classes)).astype(int)
    else:
        drawn = rng.lognormal(np.log(rng.uniform(3, 12)), rng.uniform(0.4, 1.0), n_classes)
        sizes = np.clip(np.round(drawn), 1, 40).astype(int)
    if rng.random() < 0.3:
        sizes[rng.permutation(n_classes)[: max(1, int(rng.uniform(0.1, 0.5) * n_classes))]] = 1
    if (sizes > 1).sum() < 2:
        sizes[:2] = 3
    return sizes


def drawn_rows(classes, chosen, sizes, rng):
    parts = [rng.permutation(np.flatnonzero(classes == c))[:n] for c, n in zip(chosen, sizes, strict=True)]
    return np.concatenate(parts)


def training_piles(classes, own, n_piles, rng, largest):
    """Rows of piles of 3 to 100 of the classes `own`, their number log-uniform, of at most about `largest` photos."""
    piles, most = [], min(100, len(own))
    while len(piles) < n_piles:
        sizes = drawn_sizes(int(np.round(np.exp(rng.uniform(np.log(min(3, most)), np.log(most))))), rng)
        while sizes.sum() > largest and len(sizes) > 3:
            sizes = sizes[rng.permutation(len(sizes))[: max(3, int(len(sizes) * largest / sizes.sum()))]]
        rows = drawn_rows(classes, rng.permutation(own)[: len(sizes)], sizes, rng)
        if len(rows) >= 8:
            piles.append(rows)
    return piles


def test_piles(classes, own, shape, n_piles, seed):
    n_classes, per_class = shape
    sizes = np.full(n_classes, per_class) if per_class else np.round(np.geomspace(30, 2, n_classes)).astype(int)
    for number in range(n_piles):
        rng = np.random.default_rng([seed, number, n_classes, per_class])
        yield drawn_rows(classes, rng.permutation(own)[:n_classes], sizes, rng)


def seen(variants, rows, classes, rng, vary):
    """Vectors of a pile, as one of the networks sees it; at times projected, at times sharper, as if trained on its classes."""
    x = variants[rng.integers(len(variants))][rows]
    if vary and rng.random() < 0.35:
        width = int(np.exp(rng.uniform(np.log(24), np.log(160))))
        x = x @ rng.standard_normal((x.shape[1], width)).astype(np.float32)
    if vary and rng.random() < 0.4:
        x, (_, codes) = unit_rows(x), np.unique(classes[rows], return_inverse=True)
        means = np.stack([x[codes == c].mean(axis=0) for c in range(codes.max() + 1)])
        x = x + np.float32(rng.uniform(0, 0.6)) * (means[codes] - x)
    return x


class Lessons:
    """What one kind of photos teaches: a sample of pairs, each pile of equal weight, and whole piles for the merges."""

    def __init__(self, variants, classes, own, *, n_pair_piles=100, n_node_piles=80, vary=True):
        rng, features, targets, importance = np.random.default_rng(1), [], [], []
        for rows in training_piles(classes, own, n_pair_piles, rng, 500):
            found = dense_features(seen(variants, rows, classes, rng, vary))
            first, second = np.triu_indices(len(rows), 1)
            same = classes[rows][first] == classes[rows][second]
            is_near = found[:, PAIR_FEATURES.index("rank_lower")] <= np.log(10.5)
            near, far = np.flatnonzero(is_near), np.flatnonzero(~is_near)
            n_near = min(len(near), 750)
            n_far = min(len(far), 1500 - n_near)
            taken = np.concatenate([rng.choice(near, n_near, replace=False), rng.choice(far, n_far, replace=False)])
            weight = np.repeat([len(near) / max(n_near, 1), len(far) / max(n_far, 1)], [n_near, n_far])  # undoes the choice
            features.append(found[taken])
            targets.append(same[taken])
            importance.append(weight / weight.sum() / np.sqrt(max(same.mean(), 0.005)))
        self.features, self.targets = np.concatenate(features), np.concatenate(targets).astype(np.float64)
        self.importance = np.concatenate(importance) / np.concatenate(importance).sum()
        self.piles = []
        for rows in training_piles(classes, own, n_node_piles, rng, 320):
            codes = np.unique(classes[rows], return_inverse=True)[1]
            self.piles.append((dense_features(seen(variants, rows, classes, rng, vary)), codes))


def learned(lessons):
    """Links of several kinds."""
    parts = [(lesson.features, lesson.targets, lesson.importance) for lesson in lessons]
    features, targets, importance = (np.concatenate(part) for part in zip(*parts, strict=True))
    pairs = Linear.blank(features).fitted(features, targets, importance * len(features) / importance.sum(), 10.0)
    features, targets, importance = merges(lessons, pairs)
    return Links(pairs, Linear.blank(features).fitted(features, targets, importance * len(features) / importance.sum(), 1.0))


def adapted(links, own, n_classes, strength=3.0):
    """Links of a run's own classes: maximum a posteriori; all data together weighs its number of classes."""
    pairs = links.pairs.fitted(own.features, own.targets, own.importance * n_classes, strength)
    features, targets, importance = merges([own], pairs)
    return Links(pairs, links.nodes.fitted(features, targets, importance * n_classes / importance.sum(), strength))


def merges(lessons, pairs):
    parts = []
    for found, classes in (pile for lesson in lessons for pile in lesson.piles):
        tree, features, n_across = node_features(pairs.log_odds(found), len(classes))
        parts.append((features, node_targets(tree, classes), n_across / n_across.sum()))
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


# Vectors


def vectors_of(kind, variant, options):
    """(n, dim), from the folder of vectors or embedded now. Photos are stretched, cut in the center or set on gray."""
    kept = options.vectors / f"v_{kind}_{variant}.npy"
    if not kept.exists():
        print(f"embedding {kind}, {variant}", flush=True)
        if kind == "glyphs":
            model, files = facetric.load(options.glyphs), load_dataset("glyphs").select("test").images
        else:
            name, _, size = variant.partition("_")[0].partition("at")  # as lite1at224
            image_size = int(size) if size else None
            network = build_network(f"tf_efficientnet_{name}", dim=None, weights="packaged", image_size=image_size)
            model, files = Embedder(network.eval()), listed(kind)[0]
        parts, side = [], model.preprocessing.size
        for start in range(0, len(files), 256):
            some = files[start : start + 256]
            parts.append(model.encode([f if kind == "glyphs" else squared(f, variant.partition("_")[2], side) for f in some]))
        options.vectors.mkdir(parents=True, exist_ok=True)
        np.save(kept, np.concatenate(parts))
    return unit_rows(np.load(kept))


def squared(file, fitting, side):
    photo = ImageOps.exif_transpose(Image.open(file)).convert("RGB")
    if fitting == "crop":
        scale = side / min(photo.size)
        photo = photo.resize([max(side, round(scale * length)) for length in photo.size], Image.Resampling.BILINEAR)
        left, top = ((length - side) // 2 for length in photo.size)
        return np.asarray(photo.crop((left, top, left + side, top + side)))
    if fitting == "pad":
        photo = ImageOps.pad(photo, (side, side), Image.Resampling.BILINEAR, color=(124, 116, 104))
    return np.asarray(photo.resize((side, side), Image.Resampling.BILINEAR))


def listed(kind):
    root = Path(os.environ.get("FACETRIC_DATA", "."))
    if kind == "cub":
        lines = (root / "CUB_200_2011" / "images.txt").read_text().split()[1::2]
        return [root / "CUB_200_2011" / "images" / line for line in lines], np.array([int(line[:3]) - 1 for line in lines])
    files = sorted((root / kind).glob("*/*"), key=lambda file: (file.parent.name, file.name))
    return files, np.unique([file.parent.name for file in files], return_inverse=True)[1]


def labels_of(kind):
    if kind == "glyphs":
        return np.unique(load_dataset("glyphs").select("test").labels, return_inverse=True)[1]
    return listed(kind)[1]


# Protocols


def judged(title, vectors, classes, piles, systems, today):
    """Print a row per shape of pile and the means; then expected against real precision of groups and F1 of piles."""
    totals, groups, off = {}, {name: [] for name in systems}, {name: [] for name in systems}
    for (n_classes, per_class), rows_of_piles in piles.items():
        found = {}
        for rows in rows_of_piles:
            x, own = vectors[rows], classes[rows]
            clusters = {"k-means": KMeans(len(np.unique(own)), n_init=3, random_state=0).fit_predict(x)}
            if today is not None:
                clusters["today"] = today.clusterer().fit(x).labels_
            for name, (links, lists_only) in systems.items():
                tree, n_merges, within, expected = links.group(x, lists_only)
                every = list(partitions(tree))
                clusters[name] = every[n_merges]
                clusters[f"{name}, best cut"] = max(every[-200:], key=lambda nodes: sum(f1s(own, nodes)))
                groups[name] += precisions(clusters[name], own, within)
                off[name].append(100 * (expected - f1s(own, clusters[name])[1]))
            for name, labels in clusters.items():
                found.setdefault(name, []).append((*f1s(own, labels), len(np.unique(labels))))
        means = {name: np.mean(values, axis=0) for name, values in found.items()}
        for name, mean in means.items():
            totals.setdefault(name, []).append(mean)
        cells = (f"{name} {100 * m[0]:.1f}/{100 * m[1]:.1f} ({m[2]:.0f})" for name, m in means.items())
        print(f"{title}, {n_classes} x {per_class or 'tail'} | " + " | ".join(cells), flush=True)
    means = {name: 100 * np.mean(values, axis=0) for name, values in totals.items()}
    print(f"{title}, mean | " + " | ".join(f"{name} {m[0]:.1f}/{m[1]:.1f}" for name, m in means.items()))
    for name, pairs in groups.items():
        expected, real = np.array(sorted(pairs)).T
        bins = np.array_split(expected - real, 8)
        error = sum(abs(part.mean()) * len(part) for part in bins) / len(real)
        print(f"{title}, {name}: expected against real precision of {len(real)} groups: binned error {error:.3f},", end=" ")
        print(f"mean error {np.abs(expected - real).mean():.3f}, bias {(expected - real).mean():+.3f};", end=" ")
        print(f"F1 of piles: mean error {np.mean(np.abs(off[name])):.1f}, bias {np.mean(off[name]):+.1f}", flush=True)


def f1s(classes, clusters):
    pairs, points = precision_recall(classes, clusters)
    return points.f1, pairs.f1


def precisions(nodes, classes, within):
    """Expected and real precision of every group of at least two photos."""
    found = []
    for node in np.unique(nodes):
        counts = np.unique(classes[nodes == node], return_counts=True)[1]
        n_pairs = counts.sum() * (counts.sum() - 1) / 2
        if n_pairs:
            found.append((within[node] / n_pairs, (counts * (counts - 1) / 2).sum() / n_pairs))
    return found


def leave_out(kind, kinds, options):
    lessons = [Lessons(*data, np.unique(data[1]), **options.amounts) for name, data in kinds.items() if name != kind]
    links = learned(lessons)
    halves = np.random.default_rng(5)
    pets, groceries = halves.permutation(25)[13:], halves.permutation(60)[30:]
    own = {"pets": pets, "groceries": groceries, "cub": np.arange(100, 200), "glyphs": np.arange(1, 1044, 2)}[kind]
    variants, classes = kinds[kind]
    piles = {shape: list(test_piles(classes, own, shape, options.piles, 9)) for shape in SHAPES[kind]}
    today = None if kind == "glyphs" else facetric.load().calibration
    judged(kind, variants[0], classes, piles, {"links": (links, False), "lists only": (links, True)}, today)


def cub(kinds, options):
    others = learned([Lessons(*data, np.unique(data[1]), **options.amounts) for name, data in kinds.items() if name != "cub"])
    vectors, classes = kinds["cub"][0][0], kinds["cub"][1]
    piles = {}
    for shape in CUB_SHAPES:
        drawn = [test_piles(classes, np.arange(100, 200), shape, options.piles, seed) for seed in options.seeds]
        piles[shape] = [rows for some in drawn for rows in some]
    fitting, calibrating = classes < 50, (classes >= 50) & (classes < 100)
    head = closed_form_head(vectors[fitting], classes[fitting], 64)
    embedded = unit_rows(head(vectors).astype(np.float32))
    calibrated = facetric.calibrate(embedded[calibrating], classes[calibrating])
    for title, x, own, today in (
        ("CUB, no training", vectors, np.arange(100), facetric.load().calibration),
        ("CUB, head", embedded, np.arange(50, 100), calibrated),
    ):
        links = adapted(others, Lessons([x], classes, own, vary=False, **options.amounts), len(own))
        judged(title, x, classes, piles, {"own": (links, False), "of other kinds": (others, False)}, today)


def check(vectors, classes):
    """Both forms of the features agree on the pairs in the lists, save where rounding swaps two neighbors."""
    for shape in ((50, 5), (50, 15)):
        rows = next(test_piles(classes, np.arange(100), shape, 1, 3))
        found, first, second = list_features(vectors[rows])
        whole = np.zeros((len(rows), len(rows), len(PAIR_FEATURES)), dtype=np.float32)
        whole[np.triu_indices(len(rows), 1)] = dense_features(vectors[rows])
        apart = np.abs(found - whole[first, second]).max(axis=1)
        agree = apart < 1e-4
        print(
            f"{len(rows)} photos: the forms agree to {apart[agree].max():.0e} on {agree.sum()} of {len(apart)} pairs", flush=True
        )


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    return round(value, 6)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, required=True, help="folder where vectors are kept")
    parser.add_argument("--glyphs", type=Path, help="a run of configs/glyphs.toml")
    parser.add_argument("--leave-out", choices=sorted(VARIANTS), nargs="+", default=[], help="learn on the other kinds")
    parser.add_argument("--cub", action="store_true", help="learn on the classes 1 to 100 of CUB, test on the others")
    parser.add_argument("--check", action="store_true", help="compare both forms of the features")
    parser.add_argument("--write", type=Path, metavar="FILE", help="learn on all kinds, write the coefficients as JSON")
    parser.add_argument("--retrieval", nargs="+", default=[], metavar="KIND:VARIANT", help="such as pets:lite2_crop")
    parser.add_argument("--short", action="store_true", help="few piles: whether everything runs, not what it is worth")
    options = parser.parse_args()
    options.amounts = {"n_pair_piles": 10, "n_node_piles": 8} if options.short else {}
    options.piles, options.seeds = (1, (1,)) if options.short else (5, (1, 2, 3))
    if not (options.leave_out or options.cub or options.check or options.write or options.retrieval):
        parser.error("nothing to do: add --leave-out KIND, --cub, --check, --write FILE or --retrieval KIND:VARIANT")
    for kind, variant in (item.split(":") for item in options.retrieval):
        vectors, labels = vectors_of(kind, variant, options), labels_of(kind)
        tested = labels >= (100 if kind == "cub" else 0)
        recall, precision = recall_at_k(vectors[tested], labels[tested], (1,))[1], map_at_r(vectors[tested], labels[tested])
        print(f"{kind}, {variant}: Recall@1 {100 * recall:.1f}, MAP@R {100 * precision:.1f}", flush=True)
    if not (options.leave_out or options.cub or options.check or options.write):
        return
    has_glyphs = options.glyphs or (options.vectors / "v_glyphs_glyphnet.npy").exists()
    kinds = {}
    for kind, variants in VARIANTS.items():
        if kind != "glyphs" or has_glyphs:
            kinds[kind] = [vectors_of(kind, variant, options) for variant in variants], labels_of(kind)
    if unknown := set(options.leave_out) - set(kinds):
        parser.error(f"no vectors of {', '.join(unknown)}: name a run of configs/glyphs.toml with --glyphs")
    started = time.perf_counter()
    if options.check:
        check(kinds["cub"][0][0], kinds["cub"][1])
    for kind in options.leave_out:
        leave_out(kind, kinds, options)
    if options.cub:
        cub(kinds, options)
    if options.write:
        links = learned([Lessons(*data, np.unique(data[1]), **options.amounts) for data in kinds.values()])
        options.write.write_text(json.dumps(rounded(links.to_dict()), indent=1) + "\n", encoding="utf-8")
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
