"""The losses of the paper as plain loops over pairs and triplets, on lists of floats. Values only, no gradient."""

import math


def norm(x):
    return math.sqrt(sum(v * v for v in x))


def unit(x):
    length = norm(x)
    return [v / length for v in x] if length > 0 else list(x)


def distance(x, y):
    return norm([a - b for a, b in zip(x, y, strict=True)])


def dot(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


def ordered_positive_pairs(labels):
    n = len(labels)
    return [(i, j) for i in range(n) for j in range(n) if i != j and labels[i] == labels[j]]


def negatives(labels, i):
    return [k for k in range(len(labels)) if labels[k] != labels[i]]


def triplet_semihard(X, labels, margin):
    pairs = ordered_positive_pairs(labels)
    total = 0.0
    for i, j in pairs:
        positive = distance(X[i], X[j]) ** 2
        others = [distance(X[i], X[k]) ** 2 for k in negatives(labels, i)]
        further = [d for d in others if d > positive]
        total += max(0.0, positive + margin - (min(further) if further else max(others)))
    return total / len(pairs)


def triplet(X, labels, margin):
    total, n = 0.0, 0
    for i, j in ordered_positive_pairs(labels):
        for k in negatives(labels, i):
            total += max(0.0, distance(X[i], X[j]) ** 2 + margin - distance(X[i], X[k]) ** 2)
            n += 1
    return total / n


def lifted_structure(X, labels, margin):
    pairs = [(i, j) for i, j in ordered_positive_pairs(labels) if i < j]
    total = 0.0
    for i, j in pairs:
        inner = sum(math.exp(margin - distance(X[i], X[k])) for k in negatives(labels, i))
        inner += sum(math.exp(margin - distance(X[j], X[k])) for k in negatives(labels, j))
        total += max(0.0, math.log(inner) + distance(X[i], X[j])) ** 2
    return total / (2 * len(pairs))


def npairs(X, labels, norm_weight):
    pairs = ordered_positive_pairs(labels)
    total = 0.0
    for i, j in pairs:
        positive = math.exp(dot(X[i], X[j]))
        total -= math.log(positive / (positive + sum(math.exp(dot(X[i], X[k])) for k in negatives(labels, i))))
    return total / len(pairs) + norm_weight * sum(norm(x) for x in X) / len(X)


def contrastive(X, labels, margin):
    n = len(labels)
    total = 0.0
    for i in range(n):
        for j in range(n):
            if i != j:
                d = distance(X[i], X[j])
                total += d**2 if labels[i] == labels[j] else max(0.0, margin - d) ** 2
    return total / (n * (n - 1))


def affinity(X, labels):
    n = len(labels)
    return sum((dot(X[i], X[j]) - (labels[i] == labels[j])) ** 2 for i in range(n) for j in range(n)) / n**2
