"""Average linkage by plain loops over all pairs of points."""


def mean_square(points, a, b):
    return sum(sum((x - y) ** 2 for x, y in zip(points[i], points[j], strict=True)) for i in a for j in b) / (len(a) * len(b))


def average_linkage(points, limit, must=(), cannot=()):
    """Clusters as sorted lists of points, after merging the nearest pair while it is within the limit."""
    clusters = [[i] for i in range(len(points))]

    def merge(a, b):
        clusters.remove(a)
        clusters.remove(b)
        clusters.append(sorted(a + b))

    for i, j in must:
        a, b = (next(c for c in clusters if k in c) for k in (i, j))
        if a is not b:
            merge(a, b)
    while True:
        pairs = [
            (mean_square(points, a, b), a, b)
            for k, a in enumerate(clusters)
            for b in clusters[:k]
            if not any((i in a and j in b) or (i in b and j in a) for i, j in cannot)
        ]
        if not pairs or min(pairs)[0] > limit:
            return sorted(clusters)
        merge(*min(pairs)[1:])


def most_persistent(points):
    """The clusters with the largest Σ size × (1 − height of the last merge / height of the next), alone 0, over all merges."""
    clusters, last, following, states = [(i,) for i in range(len(points))], {}, {}, []
    while len(clusters) > 1:
        square, a, b = min((mean_square(points, a, b), a, b) for k, a in enumerate(clusters) for b in clusters[:k])
        states.append(clusters)
        following[a] = following[b] = last[a + b] = square**0.5
        clusters = [*(c for c in clusters if c not in (a, b)), a + b]
    best = max(states, key=lambda state: sum(len(c) * (1 - last[c] / following[c]) for c in state if len(c) > 1))
    return sorted(sorted(c) for c in best)


def ambiguity(points, clusters, threshold):
    """Root mean square distance to the other members over that to the next best choice."""
    values = [0.0] * len(points)
    for own in clusters:
        for i in own:
            others = [mean_square(points, [i], c) ** 0.5 for c in clusters if c is not own]
            if len(own) == 1:
                values[i] = min(1.0, threshold / min(others)) if others else 0.0
            else:
                rest = mean_square(points, [i], [j for j in own if j != i]) ** 0.5
                values[i] = min(1.0, rest / min([*others, threshold]))
    return values


def components(n, pairs):
    """What the pairs join, as sets of points."""
    parts = [{i} for i in range(n)]
    for i, j in pairs:
        a, b = (next(part for part in parts if k in part) for k in (i, j))
        if a is not b:
            parts.remove(b)
            a |= b
    return parts
