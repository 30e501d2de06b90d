"""Which pairs are of one class: features of pairs, average linkage on log-odds and cuts of a tree, by loops over everything."""

import math
from itertools import combinations, product

import numpy as np

K = 40  # length of a list of neighbors


def unit(x):
    return [v / math.sqrt(float(v @ v)) for v in np.asarray(x, dtype=np.float64)]


def table(x):
    return [[float(a @ b) for b in x] for a in x]


def scale(similarities):
    """Mean and standard deviation over pairs."""
    values = [similarities[i][j] for i, j in combinations(range(len(similarities)), 2)]
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / len(values)) + 1e-6


def neighbors(x):
    s = table(unit(x))
    return [sorted((j for j in range(len(s)) if j != i), key=lambda j, i=i: (-s[i][j], j))[:K] for i in range(len(s))]


def features(x):
    """The features of every pair i < j of a pile."""
    x, lists = unit(x), neighbors(x)
    s, n, k = table(x), len(x), len(lists[0])
    mean, spread = scale(s)
    to_all = [sum(s[i][j] for j in range(n) if j != i) / (n - 1) for i in range(n)]
    averaged = {m: table(unit([x[i] + sum(x[j] for j in lists[i][:m]) for i in range(n)])) for m in (2, 5, 10)}
    scales = {m: scale(averaged[m]) for m in averaged}
    density = [(sum(s[i][j] for j in lists[i][:5]) / min(5, k) - to_all[i]) / spread for i in range(n)]
    nearest = {m: sum((s[i][lists[i][min(m, k) - 1]] - mean) / spread for i in range(n)) / n for m in (1, 3, 10, 30)}

    def rank(i, j):
        return lists[i].index(j) + 1 if j in lists[i] else k + 1

    def shared(i, j, m):
        m = min(m, k)
        return len({i, *lists[i][:m]} & {j, *lists[j][:m]}) / (m + 1)

    return {
        (i, j): {
            "cosine": (s[i][j] - mean) / spread,
            "cosine_less_means": (s[i][j] - (to_all[i] + to_all[j]) / 2) / spread,
            "rank_lower": math.log(min(rank(i, j), rank(j, i))),
            "rank_higher": math.log(max(rank(i, j), rank(j, i))),
            **{f"shared_{m}": shared(i, j, m) for m in (5, 10, 20, 40)},
            **{f"averaged_{m}": (averaged[m][i][j] - scales[m][0]) / scales[m][1] for m in averaged},
            "density_lower": min(density[i], density[j]),
            "density_higher": max(density[i], density[j]),
            **{f"nearest_{m}": value for m, value in nearest.items()},
        }
        for i, j in combinations(range(n), 2)
    }


def link(a, b, log_odds, background):
    """The mean log-odds across two clusters, and those of all pairs across: of those that are not listed, so many as could be."""
    listed = [log_odds[pair] for pair in ((min(i, j), max(i, j)) for i in a for j in b) if pair in log_odds]
    n_pairs = max(len(a) * len(b) * min(1.0, K / (len(a) + len(b))), len(listed))
    return (sum(listed) + (n_pairs - len(listed)) * background) / n_pairs, listed, n_pairs - len(listed)


def floor(log_odds, background, n):
    """2% of the way from the background to the mean of the max(n / 2, 5) most probable pairs."""
    top = sorted(log_odds.values())[-max(n // 2, 5) :]
    return background + 0.02 * max(sum(top) / len(top) - background, 0.0)


def average_linkage(n, log_odds, background, lowest, must=(), cannot=()):
    """The best pair of clusters that listed pairs join merges, again and again: [(cluster, cluster, link, listed, n missing)]."""
    clusters, merges = [frozenset([i]) for i in range(n)], []
    for i, j in must:
        a, b = (next(c for c in clusters if k in c) for k in (i, j))
        clusters = [c for c in clusters if c not in (a, b)] + [a | b]
    while True:
        found = []
        for a, b in combinations(clusters, 2):
            if not any((i in a and j in b) or (i in b and j in a) for i, j in cannot):
                value, listed, n_missing = link(a, b, log_odds, background)
                if listed and value > lowest:
                    found.append((value, a, b, listed, n_missing))
        if not found:
            return merges
        value, a, b, listed, n_missing = max(found, key=lambda merge: merge[0])
        merges.append((a, b, value, listed, n_missing))
        clusters = [c for c in clusters if c not in (a, b)] + [a | b]


def cuts(parts, n_leaves):
    """Every set of merges that can be made: with a merge, those of its parts."""
    for made in product([False, True], repeat=len(parts)):
        if all(
            part < n_leaves or made[part - n_leaves]
            for merge, parts_ in zip(made, parts, strict=True)
            if merge
            for part in parts_
        ):
            yield made


def expected_f1(made, probability, n_across, known):
    """2 · right pairs that are joined / (pairs that are joined + right pairs); `known` ones are right and joined anyway."""
    joined = known + sum(n for m, n in zip(made, n_across, strict=True) if m)
    right = known + sum(p * n for m, p, n in zip(made, probability, n_across, strict=True) if m)
    total = known + sum(p * n for p, n in zip(probability, n_across, strict=True))
    return 2 * right / (joined + total) if joined + total else 0.0
