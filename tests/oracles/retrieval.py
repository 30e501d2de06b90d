"""Retrieval scores by sorting everything, query by query. Shares no code with what it checks.

Exact: coordinates are small integers, so that every distance is computed without rounding, ties are ties, and cosines are
compared as fractions.
"""

from fractions import Fraction


def distance(x, y, metric):
    """A number that orders the neighbors of x as the metric does."""
    if metric == "euclidean":
        return sum((int(a) - int(b)) ** 2 for a, b in zip(x, y, strict=True))
    dot = sum(int(a) * int(b) for a, b in zip(x, y, strict=True))
    square = sum(int(b) ** 2 for b in y)
    return -(1 if dot >= 0 else -1) * Fraction(dot * dot, square)  # −sign·cos²·‖x‖²: the order of −cos


def neighbors(vectors, query, gallery, metric):
    """The gallery without the query, nearest first, the lowest index first among equals."""
    others = [j for j in gallery if j != query]
    return sorted(others, key=lambda j: (distance(vectors[query], vectors[j], metric), j))


def scores(vectors, labels, ks, metric, queries=None, gallery=None):
    """Recall@K for each K, R-precision, MAP@R, and how many queries have no positive."""
    everything = range(len(labels))
    queries = everything if queries is None else queries
    gallery = everything if gallery is None else gallery
    recall = {k: [] for k in ks}
    r_precision, average_precision, n_left_out = [], [], 0
    for i in queries:
        order = neighbors(vectors, i, gallery, metric)
        right = [labels[j] == labels[i] for j in order]
        R = sum(right)
        if R == 0:
            n_left_out += 1
            continue
        for k in ks:
            recall[k].append(any(right[:k]))
        r_precision.append(sum(right[:R]) / R)
        average_precision.append(sum(sum(right[: r + 1]) / (r + 1) for r in range(R) if right[r]) / R)
    if not r_precision:
        return None

    def average(values):
        return sum(values) / len(values)

    return {k: average(v) for k, v in recall.items()}, average(r_precision), average(average_precision), n_left_out
